"""Aliases of a select list, which other clauses may use instead of the expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.views.names.scope import Scope, access
from penstock.stream.views.select_tree import replace_nodes


class SelectAliases:
    """Replaces aliases by resolved expressions."""

    def __init__(self, source: SqlSource, scope: Scope) -> None:
        self._source = source
        self._scope = scope
        #: Resolved expressions by alias in lower case.
        self._expressions: dict[str, exp.Expr] = {}

    def add(self, name: str, expression: exp.Expr) -> None:
        """Add an item of the select list; items after it may use its alias."""
        self._expressions[name.lower()] = expression

    def define(self, items: Sequence[exp.Expr]) -> None:
        """Define the names of a whole select list."""
        self._expressions = {item.alias.lower(): item.unalias() for item in items}

    def expand_item(self, node: exp.Expr) -> exp.Expr:
        """Return an item of the select list in which the aliases of earlier items are replaced."""
        return self._replace(node, self._expression_for_item)

    def expand(self, node: exp.Expr, prefer_alias: bool = False) -> exp.Expr:
        """Return a part of another clause in which aliases are replaced. A column comes first, except in ORDER BY.

        If the columns are not known, a name is the alias unless the expression of the alias uses a column of that name.
        """

        def find(column: exp.Column) -> exp.Expr | None:
            name = column.parts[0].name
            aliased = self._expressions.get(name.lower())
            if aliased is None or self._scope.relation(name) is not None:
                return None
            has_column = self._scope.has_column(name)
            if has_column is None:
                has_column = any(name.lower() == part.name.lower() for part in aliased.find_all(exp.Column))
            return None if has_column and not prefer_alias else aliased

        return self._replace(node, find)

    def _expression_for_item(self, column: exp.Column) -> exp.Expr | None:
        name = column.parts[0].name
        aliased = self._expressions.get(name.lower())
        has_column = self._scope.has_column(name)
        if aliased is None or has_column or self._scope.relation(name) is not None:
            return None
        is_same = isinstance(aliased, exp.Column) and aliased.name.lower() == name.lower()
        if has_column is None and not is_same:
            raise self._source.error(
                column,
                f"is {name} a field of the events or an alias of this SELECT? Qualify the field, or write the "
                "expression of the alias again; or declare the fields with CREATE QUEUE name (column type, ...)",
            )
        return aliased

    def _replace(self, node: exp.Expr, find: Callable[[exp.Column], exp.Expr | None]) -> exp.Expr:
        def replace(part: Any) -> exp.Expr | None:
            if isinstance(part, exp.Query):
                return part
            if not isinstance(part, exp.Column) or part.meta.get("is_resolved") or isinstance(part.this, exp.Star):
                return None
            aliased = find(part)
            if aliased is None:
                return None
            result = aliased.copy()
            for field_name in part.parts[1:]:
                result = access(result, field_name)
            return result

        return replace_nodes(node, replace)
