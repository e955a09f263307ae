"""Expressions of a step: SQL text or a Spark Column, which Spark computes, or a Python function."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, TypeAlias, TypeGuard

from penstock.core.errors import InvalidRequest, short_repr

#: SQL text, a Spark Column, or a function of ``event`` or ``(event, ctx)``.
Expression: TypeAlias = str | Callable[..., Any] | Any

_COLUMN_REPR = re.compile(r"Column<'(.*)'>", re.DOTALL)
_LAMBDA_VARIABLE = re.compile(r"\b([xyz])_\d+\b")


def is_column(value: object) -> bool:
    """Return whether a value is a Spark Column, without importing Spark."""
    return _has_spark_class(value, "Column")


def is_frame(value: object) -> bool:
    return _has_spark_class(value, "DataFrame")


def is_python(value: object) -> TypeGuard[Callable[..., Any]]:
    """Return whether a value is a function that runs in the Python workers, outside Spark."""
    return callable(value) and not is_column(value) and not is_frame(value)


def check_expression(value: object, what: str) -> Any:
    """Return the expression if it is one. ``what`` names it in errors."""
    if isinstance(value, str):
        return _check_sql(value, what)
    if is_column(value):
        return value
    if is_python(value):
        check_not_async(value, what)
        takes_context(value, what)
        return value
    raise InvalidRequest(f"{what} must be SQL text, a Spark Column or a function of an event, not {short_repr(value)}")


def _check_sql(text: str, what: str) -> str:
    from penstock.stream.sql.sql_text import find_problem

    if not text.strip():
        raise InvalidRequest(f"{what} is an empty text; write an SQL expression such as 'amount > 10'")
    problem = find_problem(text)
    if problem is not None:
        raise InvalidRequest(f"{what}: the SQL {short_repr(text)} {problem}; write it like 'amount > 10'")
    return text


def check_not_async(function: Callable[..., Any], what: str) -> None:
    """Refuse an async function where nothing awaits it."""
    inside: object = function
    while isinstance(inside, functools.partial):
        inside = inside.func
    called = inside if inspect.isroutine(inside) else getattr(type(inside), "__call__", None)  # noqa: B004
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise InvalidRequest(f"{what} takes a plain function, not an async one: only .enrich(f) awaits those")


def takes_context(function: Callable[..., Any], what: str = "the function") -> bool:
    """Return whether a function takes ``(event, ctx)``. Raises InvalidRequest if it cannot take an event either."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False  # a builtin without a signature gets the event alone
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    is_variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if len(required) > 2 or keywords or (not positional and not is_variadic):
        raise InvalidRequest(
            f"{what}: {function_name(function)} must take an event, or an event and a context: "
            "write def f(event) or def f(event, ctx), and bind other arguments with functools.partial"
        )
    return len(required) == 2 or (len(positional) >= 2 and positional[1].name in ("ctx", "context"))


def function_name(function: object) -> str:
    """Return the name of a function, or of the type of a callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    name = str(getattr(function, "__name__", type(function).__name__))
    return "lambda" if name == "<lambda>" else name


def describe_expression(expression: object) -> str:
    """Return the text of an expression that is part of a query's fingerprint: SQL on one line, a function's name."""
    from penstock.stream.sql.sql_text import on_one_line

    if is_python(expression):
        return function_name(expression)
    return on_one_line(expression) if isinstance(expression, str) else column_text(str(expression))


def column_text(text: str) -> str:
    """Return the text of a printed Spark Column without ``Column<'...'>``.

    Spark numbers the variables of lambdas per process. Here they count from 1, so that equal Columns have one text.
    """
    match = _COLUMN_REPR.fullmatch(text)
    if match is None or "->" not in match[1]:
        return text if match is None else match[1]
    names: dict[str, str] = {}
    return _LAMBDA_VARIABLE.sub(
        lambda variable: names.setdefault(variable[0], f"{variable[1]}_{len(names) + 1}"), match[1]
    )


def _has_spark_class(value: object, name: str) -> bool:
    return any(kind.__name__ == name and kind.__module__.startswith("pyspark.") for kind in type(value).__mro__)


def accepts_arguments(function: Callable[..., Any], *arguments: Any) -> bool:
    """Return whether a function takes the arguments; True for a builtin without a signature."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:
        return True
    return True
