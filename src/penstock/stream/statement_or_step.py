"""``Stream.sql("INSERT INTO ...")`` of the class is a whole stream; ``.sql("SELECT ...")`` of a stream is a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from typing import Any, Generic, Protocol, TypeVar, overload

_S = TypeVar("_S")
_Result = TypeVar("_Result", covariant=True)
_Stream = TypeVar("_Stream")


class _Step(Protocol[_Result]):
    def __call__(self, query: str, *, name: str | None = None, **tables: Any) -> _Result: ...


class _Statement(Protocol[_Result]):
    def __call__(
        self, statement: str, *, functions: Mapping[str, Callable[..., Any]] | None = None, **tables: Any
    ) -> _Result: ...


class statement_or_step(Generic[_S]):
    """A descriptor: the method of a stream is a step, and the same name of the class takes a statement."""

    def __init__(self, step: Callable[..., _S]) -> None:
        self._step = step
        update_wrapper(self, step)  # type: ignore[arg-type]  # it is called as the method is

    @overload
    def __get__(self, stream: None, owner: type[_Stream]) -> _Statement[_Stream]: ...
    @overload
    def __get__(self, stream: _Stream, owner: type[_Stream]) -> _Step[_Stream]: ...
    def __get__(self, stream: Any, owner: Any) -> Any:
        if stream is not None:
            return partial(self._step, stream)
        from penstock.stream.statements.statement_parser import stream_from_statement

        return partial(stream_from_statement, owner)
