"""Checks how a view reads reference tables: rows are joined with them once, when they appear."""

from __future__ import annotations

from typing import NoReturn

from sqlglot import exp

from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.views.names.inline import relation_name
from penstock.stream.views.view_plan import (
    LOOKUP_KINDS,
    Join,
    JoinKind,
    Operator,
    ReferenceSource,
    inputs_of,
    is_append_only,
    is_reference,
    walk,
)


def check_references(source: SqlSource, query: exp.Expr, root: Operator) -> None:
    """Refuse a reference table that is not joined with rows that stay as they are."""
    _Check(source, query).check(root)


class _Check:
    def __init__(self, source: SqlSource, query: exp.Expr) -> None:
        self._source = source
        self._query = query

    def check(self, operator: Operator) -> None:
        if isinstance(operator, Join) and (is_reference(operator.left) or is_reference(operator.right)):
            self.check(self._joined_rows(operator))
        elif isinstance(operator, ReferenceSource):
            self._refuse(operator, "whose changes a view does not follow: join a queue with it, FROM queue q JOIN {} t")
        else:
            for source in inputs_of(operator):
                self.check(source)

    def _joined_rows(self, join: Join) -> Operator:
        """Return the rows that are joined with a reference table."""
        rows, table, kinds = join.left, join.right, LOOKUP_KINDS
        if not is_reference(table):
            rows, table, kinds = join.right, join.left, (JoinKind.INNER, JoinKind.RIGHT)
        if is_reference(rows):
            self._refuse(rows, "and so is the other side of the join: join them in one CREATE REFERENCE ... AS SELECT")
        if join.kind not in kinds:
            self._refuse(table, "and its rows without an event are no rows of a view: write JOIN or LEFT JOIN {}")
        if not is_append_only(rows):
            self._refuse(
                table,
                "which is read once for each row, and the rows that it is joined with change: join the events with it "
                "before, FROM (SELECT ... FROM queue q JOIN {} t ON ...), or push its rows to a queue and read that",
            )
        return rows

    def _refuse(self, table: Operator, reason: str) -> NoReturn:
        (name,) = (each.table for each in walk(table) if isinstance(each, ReferenceSource))
        nodes = [node for node in self._query.find_all(exp.Table) if relation_name(node) == name]
        where = nodes[0] if nodes else self._query
        raise self._source.error(where, f"{name} is a reference table, {reason.format(name)}")
