"""Resolves the names of a statement: every column gets the unique alias of its relation.

Stars, ordinals, aliases of the select list, USING and named windows are replaced by what they stand for.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.views.names.relations import add_relation
from penstock.stream.views.names.scope import NamedRelation, Scope
from penstock.stream.views.names.select_names import SelectNames
from penstock.stream.views.names.view_clauses import check_clauses
from penstock.stream.views.select_tree import unwrap
from penstock.stream.views.view_catalog import ViewCatalog


class Qualifier:
    """Resolves the names of one statement, in place."""

    def __init__(self, source: SqlSource, catalog: ViewCatalog) -> None:
        self.source = source
        self.catalog = catalog
        #: The relations of the whole statement by their unique aliases.
        self.relations: dict[str, NamedRelation] = {}
        self._aliases: set[str] = set()

    def qualify(self, node: Any, parent: Scope | None = None, is_named: bool = True) -> tuple[str, ...]:
        """Resolve a query and return the names of its columns. The names must be unique if ``is_named``."""
        query = unwrap(node)
        if query is not node:
            node.replace(query)
        if isinstance(query, exp.SetOperation):
            return self._qualify_set_operation(query, parent, is_named)
        if not isinstance(query, exp.Select):
            raise self.source.error(query, "a view is a SELECT: CREATE MATERIALIZED VIEW totals AS SELECT ...")
        return SelectNames(self, query, parent).qualify(is_named)

    def relation(self, node: Any, parent: Scope | None) -> NamedRelation:
        """Return the relation of a table or a subquery after FROM or JOIN, and give the node its unique alias."""
        return add_relation(self, node, parent)

    def unique_alias(self, name: str) -> str:
        # A dot would make a.b.c ambiguous.
        base = name.replace(".", "_")
        alias, number = base, 1
        while alias.lower() in self._aliases:
            number += 1
            alias = f"{base}_{number}"
        self._aliases.add(alias.lower())
        return alias

    def _qualify_set_operation(self, query: Any, parent: Scope | None, is_named: bool) -> tuple[str, ...]:
        check_clauses(self.source, query)
        by_name = bool(query.args.get("by_name"))
        if not isinstance(query, exp.Union) and not query.args.get("distinct"):
            name = "INTERSECT" if isinstance(query, exp.Intersect) else "EXCEPT"
            raise self.source.error(query, f"{name} ALL is not supported: write {name}, or EXISTS and NOT EXISTS")
        columns = self.qualify(query.this, parent, is_named)
        others = self.qualify(query.expression, parent, is_named=by_name)
        if len(columns) != len(others):
            raise self.source.error(
                query.expression, f"the first SELECT has {len(columns)} columns, and this one has {len(others)}"
            )
        if by_name:
            self._reorder(query, columns, others)
        order = query.args.get("order")
        for item in order.expressions if order is not None else []:
            item.set("this", exp.Literal.number(self._output_number(item.this, columns)))
        return columns

    def _reorder(self, query: Any, columns: tuple[str, ...], others: tuple[str, ...]) -> None:
        positions = {name.lower(): index for index, name in enumerate(others)}
        missing = [name for name in columns if name.lower() not in positions]
        if missing:
            raise self.source.error(query.expression, f"the second SELECT has no column {missing[0]!r}")
        if not isinstance(query.expression, exp.Select):
            raise self.source.error(query.expression, "BY NAME combines two SELECTs: write the columns in one order")
        items = query.expression.expressions
        query.expression.set("expressions", [items[positions[name.lower()]] for name in columns])

    def _output_number(self, node: exp.Expr, columns: tuple[str, ...]) -> int:
        """Return the number of the column that ORDER BY names after a set operation."""
        if isinstance(node, exp.Literal) and node.name.isdecimal() and 1 <= int(node.name) <= len(columns):
            return int(node.name)
        names = [name.lower() for name in columns]
        if isinstance(node, exp.Column) and not node.table and node.name.lower() in names:
            return names.index(node.name.lower()) + 1
        raise self.source.error(node, f"ORDER BY after a set operation takes a column: {', '.join(columns)}")
