"""Which columns SQL text refers to, so that only these are read from the events.

A name too many costs a little. A name too few would be a column that is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sqlglot import Token, TokenType, exp

from penstock.core.errors import InvalidSql
from penstock.stream.sql.expression_parser import parse_expression, parse_select
from penstock.stream.sql.sql_source import SqlSource

#: Functions without parentheses that sqlglot takes for columns. A column of that name would hide the function.
_BARE_FUNCTIONS = frozenset(("current_time", "localtimestamp"))


def column_names(text: str) -> list[str]:
    """Return the columns of the stream that an expression, a select list or a query may refer to, in order."""
    try:
        tree = parse_select(text)
    except InvalidSql:
        # Spark may be able to parse what sqlglot is not.
        return list(dict.fromkeys(_every_name(SqlSource(text).tokenize())))
    tables = {table.alias_or_name.lower(): table.name.lower() for table in tree.find_all(exp.Table)}
    names = [(_start(column), name) for column in _columns(tree) for name in _referenced(column, tables)]
    return list(dict.fromkeys(name for _, name in sorted(names, key=lambda each: each[0])))


def column_paths(text: str) -> list[list[str]] | None:
    """Return the dotted columns that an expression, a select list or a query may refer to; None if it is not parsed."""
    try:
        tree = parse_select(text)
    except InvalidSql:
        return None
    tables = {table.alias_or_name.lower() for table in tree.find_all(exp.Table)}
    paths = []
    for column in tree.find_all(exp.Column):
        path = column_path(column)
        if not tables or len(path) == 1:
            paths.append(path)
        elif path[0].lower() in tables:
            paths.append(path[1:])
        else:
            # The first name may be a subquery or a struct.
            paths += [path, path[1:]]
    return paths


def bare_column(text: str) -> str | None:
    """Return the name of the column if an expression is a column and nothing else."""
    try:
        path = column_path(parse_expression(text))
    except InvalidSql:
        return None
    return path[0] if len(path) == 1 else None


class StructReference(NamedTuple):
    """A reference to a column that is a struct."""

    #: The names below the struct, ``["order", "amount"]``; empty for the struct as a whole.
    path: list[str]
    #: Whether the reference only tests if the struct is null.
    is_null_test: bool


def struct_references(text: str, struct: str) -> list[StructReference]:
    """Return the references of an expression, a select list or a query to a column that is a struct."""
    try:
        tree = parse_select(text)
    except InvalidSql:
        return [StructReference([], False)]
    tables = {table.alias_or_name.lower() for table in tree.find_all(exp.Table)}
    references = []
    for column in tree.find_all(exp.Column):
        path = column_path(column)
        if len(path) > 1 and path[0].lower() in tables and path[0].lower() != struct:
            del path[0]
        if path and path[0].lower() == struct:
            is_null_test = isinstance(column.parent, exp.Is) and isinstance(column.parent.expression, exp.Null)
            references.append(StructReference(path[1:], is_null_test))
    return references


def column_path(node: exp.Expr) -> list[str]:
    """Return the names of a dotted column, ``["order", "customer", "name"]``; empty if it is no column."""
    return [part.name for part in node.parts if not isinstance(part, exp.Star)] if isinstance(node, exp.Column) else []


def _columns(tree: exp.Expr) -> Iterator[exp.Expr]:
    yield from tree.find_all(exp.Column)
    for join in tree.find_all(exp.Join):
        yield from join.args.get("using") or []


def _referenced(column: exp.Expr, tables: dict[str, str]) -> list[str]:
    if isinstance(column, exp.Identifier):
        return [column.name]
    path = column_path(column)
    table = tables.get(path[0].lower()) if path else None
    if table is not None and (len(path) > 1 or column.is_star):
        return path[1:2] if table == "stream" else []
    if len(path) == 1 and path[0].lower() in _BARE_FUNCTIONS:
        return []
    # In a query, the first name may be a subquery or a struct.
    return path[:2] if tables else path[:1]


def _start(column: exp.Expr) -> int:
    first = column.parts[0] if isinstance(column, exp.Column) else column
    return int(first.meta.get("start", 0))


def _every_name(tokens: list[Token]) -> Iterator[str]:
    for index, token in enumerate(tokens):
        is_call = index + 1 < len(tokens) and tokens[index + 1].token_type is TokenType.L_PAREN
        is_name = token.token_type is TokenType.IDENTIFIER or token.text.isidentifier()
        if is_name and not is_call and token.token_type not in (TokenType.STRING, TokenType.RAW_STRING):
            yield token.text
