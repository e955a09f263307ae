"""Python functions that SQL statements call: ``CREATE FUNCTION count_char AS 'module:function'``."""

from __future__ import annotations

import importlib
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, cast

from sqlglot import exp

from penstock.core.errors import InvalidRequest, InvalidSql, short_repr
from penstock.stream.expression import check_not_async, function_name, is_python
from penstock.stream.sql.dialect import StatementSql
from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.steps import SqlFunction

_TYPES = {
    bool: "boolean",
    int: "bigint",
    float: "double",
    str: "string",
    bytes: "binary",
    Decimal: "decimal(38,18)",
    datetime: "timestamp",
    date: "date",
}


def sql_function(name: str, function: object, returns: str | None = None) -> SqlFunction:
    """Return the function under a name. Without ``returns``, its annotations say the type of its result."""
    what = f"the function {name!r}"
    if not is_python(function) or isinstance(function, type):
        raise InvalidRequest(f"{what} must be a Python function, not {short_repr(function)}")
    check_not_async(function, what)
    if not name.isidentifier() or not _is_free(name):
        raise InvalidRequest(f"{what}: Spark's SQL has this word already; give the function another name")
    return SqlFunction(name.lower(), function, returns or _annotated_type(function, what))


def load_function(reference: str) -> Callable[..., Any]:
    """Import the function that ``module:function`` names."""
    module_name, _, name = reference.partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module_name.split(".")):
        raise InvalidRequest(f"{reference!r} does not name a function: write it like 'package.module:function'")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise InvalidRequest(
            f"the module {module_name} cannot be imported: {type(error).__name__}: {error}. Put it next to the file "
            "of the statements, or install it"
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise InvalidRequest(f"the module {module_name} has no function {name}")
    return cast("Callable[..., Any]", function)


def called_functions(
    source: SqlSource, query: exp.Expr, functions: Mapping[str, SqlFunction]
) -> dict[str, SqlFunction]:
    """Return the functions that a query calls, by name. Refuses calls with another number of arguments."""
    called = {}
    for node in query.find_all(exp.Anonymous):
        found = functions.get(node.name.lower())
        if found is not None:
            _check_arguments(source, node, found)
            called[found.name] = found
    return called


def _check_arguments(source: SqlSource, node: exp.Expr, called: SqlFunction) -> None:
    try:
        signature = inspect.signature(called.function)
    except (TypeError, ValueError):
        return  # a builtin without a signature
    try:
        signature.bind(*node.expressions)
    except TypeError as error:
        raise source.error(
            node, f"{called.name} is the Python function {function_name(called.function)}{signature}: {error}"
        ) from None


def _is_free(name: str) -> bool:
    """Return whether a call of this name means nothing to the parser."""
    source = SqlSource(f"{name}(1)", dialect=StatementSql)
    try:
        parsed = source.parse(source.tokenize(), exp.Expr)
    except InvalidSql:
        return False
    return isinstance(parsed, exp.Anonymous)


def _annotated_type(function: Callable[..., Any], what: str) -> str:
    try:
        annotation = typing.get_type_hints(function).get("return")
    except (NameError, TypeError):
        annotation = None
    found = _spark_type(annotation)
    if found is None:
        raise InvalidRequest(
            f"{what}: the type of its result is not known. Annotate it, def {function_name(function)}(...) -> int, or "
            "write CREATE FUNCTION name RETURNS bigint AS ..."
        )
    return found


def _spark_type(annotation: Any) -> str | None:
    arguments = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        present = [each for each in arguments if each is not types.NoneType]
        return _spark_type(present[0]) if len(present) == 1 else None
    if origin is list and len(arguments) == 1:
        element = _spark_type(arguments[0])
        return None if element is None else f"array<{element}>"
    if origin is dict and len(arguments) == 2 and arguments[0] is str:
        value = _spark_type(arguments[1])
        return None if value is None else f"map<string,{value}>"
    return _TYPES.get(annotation) if isinstance(annotation, type) else None
