"""What a step computes: SQL text or a Spark Column, which run inside Spark, or a Python callable."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeAlias, TypeGuard

from penstock.core.errors import InvalidRequest, shown
from penstock.stream.sql.column_refs import names_in as names_in
from penstock.stream.sql.tokens import problem_in

#: SQL text, a Spark Column, or a callable that takes ``event`` or ``(event, ctx)``.
Expression: TypeAlias = str | Callable[..., Any] | Any


def is_column(value: object) -> bool:
    """Whether it is a Spark Column. Spark itself need not be there to say so."""
    return _is_of_spark(value, "Column")


def is_frame(value: object) -> bool:
    """Whether it is a Spark DataFrame."""
    return _is_of_spark(value, "DataFrame")


def is_python(value: object) -> TypeGuard[Callable[..., Any]]:
    """Whether it is a Python callable, which runs in the workers and not inside Spark."""
    return callable(value) and not is_column(value) and not is_frame(value)


def check_expression(value: object, what: str) -> Any:
    """Return the expression, if it is one."""
    if isinstance(value, str):
        if not value.strip():
            raise InvalidRequest(f"{what} is an empty text; write an SQL expression such as 'amount > 10'")
        problem = problem_in(value)
        if problem is not None:
            raise InvalidRequest(f"{what}: the SQL {shown(value)} {problem}; write it like 'amount > 10'")
        return value
    if is_column(value):
        return value
    if is_python(value):
        check_plain(value, what)
        takes_context(value, what)
        return value
    raise InvalidRequest(f"{what} must be SQL text, a Spark Column or a function of an event, not {shown(value)}")


def check_plain(function: Callable[..., Any], what: str) -> None:
    """Refuse an async function where nothing would wait for it."""
    inside: object = function
    while isinstance(inside, functools.partial):
        inside = inside.func
    called = inside if inspect.isroutine(inside) else getattr(type(inside), "__call__", None)  # noqa: B004
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise InvalidRequest(f"{what} takes a plain function, not an async one: only .enrich(f) waits for those")


def takes_context(function: Callable[..., Any], what: str = "the function") -> bool:
    """Whether a callable wants ``(event, ctx)``; it is refused if it takes neither that nor ``event``."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False  # a builtin that does not say: it gets the event alone
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    many = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if len(required) > 2 or keywords or (not positional and not many):
        raise InvalidRequest(
            f"{what}: {function_name(function)} must take an event, or an event and a context: "
            "write def f(event) or def f(event, ctx), and bind what else it needs with functools.partial"
        )
    return len(required) == 2 or (len(positional) >= 2 and positional[1].name in ("ctx", "context"))


def function_name(function: object) -> str:
    """What a person would call a callable: its name, or its type's."""
    while isinstance(function, functools.partial):
        function = function.func
    name = str(getattr(function, "__name__", type(function).__name__))
    return "lambda" if name == "<lambda>" else name


def _is_of_spark(value: object, name: str) -> bool:
    return any(kind.__name__ == name and kind.__module__.startswith("pyspark.") for kind in type(value).__mro__)
