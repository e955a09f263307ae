"""Replaces the names of CTEs and of CREATE VIEW statements by subqueries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp

from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.views.names.view_clauses import check_clauses

#: Functions that return a copy of the subquery for a name in lower case.
_Definitions = Mapping[str, Callable[[], exp.Subquery]]


def inline_names(source: SqlSource, query: exp.Expr, subqueries: Mapping[str, exp.Expr]) -> exp.Expr:
    """Return a query without WITH, and without the names of subqueries."""
    root = exp.Paren(this=query.copy())
    _inline(source, root, _definitions_of(source, subqueries))
    result: exp.Expr = root.this
    result.pop()
    return result


def relation_name(table: exp.Table) -> str:
    """Return the name of a table with its schema."""
    return ".".join(part.name for part in table.parts)


def _definitions_of(source: SqlSource, subqueries: Mapping[str, exp.Expr]) -> _Definitions:
    def define(name: str, query: exp.Expr) -> Callable[[], exp.Subquery]:
        # A subquery does not see itself, so that a queue can have its name.
        others = {other: value for other, value in subqueries.items() if other != name}
        return lambda: exp.Subquery(this=inline_names(source, query, others))

    return {name: define(name, query) for name, query in subqueries.items()}


def _inline(source: SqlSource, node: exp.Expr, definitions: _Definitions) -> None:
    if isinstance(node, exp.Query) and node.args.get("with_") is not None:
        definitions = _add_ctes(source, node, definitions)
    for child in list(node.iter_expressions()):
        name = relation_name(child) if isinstance(child, exp.Table) and isinstance(child.this, exp.Identifier) else ""
        define = definitions.get(name.lower())
        if define is None:
            _inline(source, child, definitions)
            continue
        check_clauses(source, child)
        subquery = define()
        columns = subquery.args["alias"].args.get("columns") if subquery.args.get("alias") else None
        alias = child.args.get("alias") or exp.TableAlias(this=child.this.copy())
        if columns and not alias.args.get("columns"):
            alias = exp.TableAlias(this=alias.this.copy(), columns=[name.copy() for name in columns])
        subquery.set("alias", alias)
        child.replace(subquery)


def _add_ctes(source: SqlSource, query: Any, definitions: _Definitions) -> _Definitions:
    """Remove the WITH of a query and return the names that it adds. A CTE sees those before it."""
    with_ = query.args["with_"]
    check_clauses(source, with_)
    query.set("with_", None)
    for cte in with_.expressions:
        check_clauses(source, cte)
        _inline(source, cte, definitions)
        subquery = exp.Subquery(this=cte.this, alias=cte.args["alias"])
        definitions = {**definitions, cte.alias.lower(): subquery.copy}
    return definitions
