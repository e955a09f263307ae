"""The SELECT of a step, ``.sql("SELECT a, b * 2 AS c FROM stream")``.

Its result for an event must not depend on the events that are processed together with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlglot import TokenType, exp

from penstock.core.errors import InvalidRequest, InvalidSql, short_repr
from penstock.stream.sql.expression_parser import parse_select
from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.sql.sql_text import find_problem

_AGGREGATES = frozenset(
    (
        *("count", "count_if", "sum", "avg", "mean", "min", "max", "stddev", "variance", "first", "last", "median"),
        *("collect_list", "collect_set", "approx_count_distinct", "percentile", "percentile_approx"),
        *("max_by", "min_by"),
    )
)
_EXAMPLE = "SELECT a, b * 2 AS c FROM stream"


def check_select_step(query: object) -> str:
    """Return the query if it is a SELECT over ``stream`` that works event by event."""
    text = query.strip().removesuffix(";") if isinstance(query, str) else ""
    problem = find_problem(text) if text else None
    if problem is not None:
        raise InvalidRequest(f"sql: {short_repr(text)} {problem}; write it like '{_EXAMPLE}'")
    if not text or SqlSource(text).tokenize()[0].token_type is not TokenType.SELECT:
        raise InvalidRequest(
            f"sql takes a SELECT over the table `stream`, such as '{_EXAMPLE}', not {short_repr(query)}"
        )
    try:
        tree = parse_select(text)
    except InvalidSql as error:
        raise InvalidRequest(f"sql: {short_repr(text)}: {error}; write it like '{_EXAMPLE}'") from None
    if not _stream_tables(tree):
        raise InvalidRequest(f"sql must read FROM stream, which stands for the events: '{_EXAMPLE}'")
    for part in tree.find_all(exp.Query):
        clause = _clause_over_several_rows(part) if _stream_tables(part) else None
        if clause is not None:
            raise InvalidRequest(
                f"sql works event by event, and {clause} needs several: add a window and .aggregate({{...}}) after it"
            )
    return text


def selects_all_fields(query: str) -> bool:
    """Return whether the query selects all fields of the stream, perhaps with others."""
    return any(True for _ in _stars(parse_select(query)))


def excludes_fields(query: str) -> bool:
    """Return whether the query selects all fields of the stream except some."""
    return any(star.args.get("except_") for star in _stars(parse_select(query)))


def with_stream_columns(query: str, columns: Sequence[str]) -> str:
    """Return the query with columns of the stream in front of its own. ``SELECT *`` has them already.

    The name of the stream becomes quoted, because ``FROM stream s`` reads a streaming table ``s`` in Spark. All else
    stays as the user wrote it: for 357 of the 1,307 examples in Spark's documentation of functions, Spark's plan of
    what sqlglot prints differs from its plan of the example.
    """
    tree = parse_select(query)
    names = [table.this for table in _stream_tables(tree)]
    alias = _stream_tables(tree)[0].args.get("alias")
    prefix = "`stream`" if alias is None else alias.this.sql("spark")
    added = "" if selects_all_fields(query) else "".join(f" {prefix}.{column}," for column in columns)
    after_select = SqlSource(query).tokenize()[0].end + 1
    parts, end = [query[:after_select], added], after_select
    for name in names:
        parts += [query[end : name.meta["start"]], "`stream`"]
        end = name.meta["end"] + 1
    return "".join([*parts, query[end:]])


def _stream_tables(tree: exp.Expr) -> list[exp.Table]:
    """Return the tables that are the stream, in the order of the text."""
    tables = [table for table in tree.find_all(exp.Table) if [part.name.lower() for part in table.parts] == ["stream"]]
    return sorted(tables, key=lambda table: int(table.this.meta["start"]))


def _stars(tree: Any) -> Iterator[exp.Star]:
    """Return each ``*`` of the outermost SELECT that stands for the fields of the stream."""
    names = {"stream", *(table.alias_or_name.lower() for table in _stream_tables(tree))}
    for item in tree.selects:
        if isinstance(item, exp.Star):
            yield item
        elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star) and item.table.lower() in names:
            yield item.this


def _clause_over_several_rows(query: exp.Query) -> str | None:
    """Return the clause or function of a query, without its subqueries, that needs several events."""
    over = False
    for node in query.walk(prune=lambda node: isinstance(node, exp.Query) and node is not query):
        if isinstance(node, exp.Anonymous) and node.name.lower() in _AGGREGATES:
            return f"{node.name.lower()}(...)"
        over = over or isinstance(node, exp.Window)
    if over:
        return "a window function (OVER)"
    if query.args.get("distinct") and isinstance(query, exp.Select):
        return "SELECT DISTINCT"
    for name in ("group", "cluster", "distribute"):
        if query.args.get(name):
            return f"{name.upper()} BY"
    limit = query.args.get("limit")
    return "LIMIT" if limit is not None and isinstance(limit.expression, exp.Literal) else None
