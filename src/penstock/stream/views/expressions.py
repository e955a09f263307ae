"""Expressions of a plan as text and as trees.

The text is Spark SQL over the columns of an operator's input, in backquotes. A tree has no parentheses, so that equal
expressions have equal trees.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from sqlglot import exp, parse_one

from penstock.stream.views.select_tree import column, full_name, replace_nodes
from penstock.stream.views.view_dialect import ViewSql

#: Operators that sqlglot prints between their operands although it knows them as functions.
_INFIX_FUNCTIONS = (exp.Connector, exp.RegexpLike, exp.Collate)


def to_sql(node: exp.Expr) -> str:
    """Return an expression as Spark SQL over the columns of an operator."""
    return _add_parentheses(node.transform(_flat_column)).sql("spark")


def parse_sql(sql: str) -> exp.Expr:
    """Return the tree of an expression of a plan. Its columns have no table."""
    return _parse(sql).copy()


def column_names(sql: str | None) -> frozenset[str]:
    """Return the names of the columns that an expression of a plan uses."""
    return frozenset() if sql is None else _column_names(sql)


def tree_columns(node: exp.Expr) -> frozenset[str]:
    """Return the names of all columns of a tree, also of those in subqueries."""
    return frozenset(full_name(part) for part in node.find_all(exp.Column))


def plain_column(sql: str) -> str | None:
    """Return the column that an expression is; None if it computes something."""
    if sql.startswith("`") and sql.endswith("`") and "`" not in sql[1:-1]:
        return sql[1:-1]
    node = _parse(sql)
    return node.name if isinstance(node, exp.Column) else None


def column_sql(name: str) -> str:
    return to_sql(column(name))


def substitute(node: exp.Expr, columns: Mapping[str, exp.Expr]) -> exp.Expr:
    """Return a copy in which columns are replaced by expressions."""

    def replace(part: exp.Expr) -> exp.Expr | None:
        found = columns.get(full_name(part)) if isinstance(part, exp.Column) else None
        return None if found is None else found.copy()

    return replace_nodes(node, replace)


def substitute_sql(sql: str, columns: Mapping[str, exp.Expr]) -> str:
    return to_sql(substitute(_parse(sql), columns)) if column_names(sql) else sql


def remove_parentheses(node: exp.Expr) -> exp.Expr:
    """Remove all parentheses in place. The tree has the order of evaluation."""
    root = exp.Tuple(expressions=[node])
    for part in list(root.find_all(exp.Paren)):
        if not isinstance(part.parent, exp.Any | exp.All):
            part.replace(part.this)
    result: exp.Expr = root.expressions[0]
    result.pop()
    return result


@lru_cache(maxsize=4096)
def _parse(sql: str) -> exp.Expr:
    return remove_parentheses(parse_one(sql, dialect=ViewSql).transform(_split_path))


@lru_cache(maxsize=4096)
def _column_names(sql: str) -> frozenset[str]:
    return tree_columns(_parse(sql))


def _split_path(node: exp.Expr) -> exp.Expr:
    """Turn ```b.item`.`price``` into a field of a column."""
    if not isinstance(node, exp.Column) or not node.table:
        return node
    first, *fields = node.parts
    result: exp.Expr = exp.Column(this=first)
    for name in fields:
        result = exp.Dot(this=result, expression=name)
    return result


def _flat_column(node: exp.Expr) -> exp.Expr:
    return column(full_name(node)) if isinstance(node, exp.Column) and node.table else node


def _add_parentheses(node: exp.Expr) -> exp.Expr:
    """Put operands that are operations into parentheses."""
    for part in list(node.walk(bfs=False)):
        if part.parent is not None and _needs_parentheses(part, part.parent):
            parent, key, index = part.parent, part.arg_key, part.index
            parent.set(str(key), exp.Paren(this=part), index)
    return node


def _is_operation(node: Any) -> bool:
    if isinstance(node, _INFIX_FUNCTIONS):
        return True
    is_operator = isinstance(node, exp.Binary | exp.Unary | exp.Between | exp.In)
    return is_operator and not isinstance(node, exp.Dot | exp.Func | exp.Paren | exp.PropertyEQ)


def _needs_parentheses(node: exp.Expr, parent: exp.Expr) -> bool:
    if isinstance(parent, exp.Dot | exp.Bracket):
        return node.arg_key == "this" and (_is_operation(node) or isinstance(node, exp.Case))
    if not _is_operation(node) or not _is_operation(parent) or isinstance(parent, exp.Escape):
        return False
    # AND and OR of several operands are printed without parentheses.
    is_chain = type(node) is type(parent) and isinstance(node, exp.Connector)
    return not (is_chain and node.arg_key == "this")
