"""``Stream.sql("INSERT INTO ...")`` of the class is a whole stream; ``.sql("SELECT ...")`` of a stream is a step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any, Generic, Protocol, TypeVar, overload

_S = TypeVar("_S")
_Made = TypeVar("_Made", covariant=True)
_Same = TypeVar("_Same")


class _Step(Protocol[_Made]):
    def __call__(self, query: str, *, name: str | None = None, **tables: Any) -> _Made: ...


class _Statement(Protocol[_Made]):
    def __call__(self, statement: str, **tables: Any) -> _Made: ...


class statement_or_step(Generic[_S]):
    """Lets a method be called on the class too, with a statement."""

    def __init__(self, step: Callable[..., _S]) -> None:
        self._step = step
        update_wrapper(self, step)  # type: ignore[arg-type]  # it is called as the method is

    @overload
    def __get__(self, stream: None, owner: type[_Same]) -> _Statement[_Same]: ...
    @overload
    def __get__(self, stream: _Same, owner: type[_Same]) -> _Step[_Same]: ...
    def __get__(self, stream: Any, owner: Any) -> Any:
        if stream is not None:
            return partial(self._step, stream)
        from penstock.stream.sql.statements import stream_of

        return partial(stream_of, owner)
