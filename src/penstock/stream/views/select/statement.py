"""The state that the parts of the planner share: the relations of the statement, its columns, and unique names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp

from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.views.expressions import to_sql
from penstock.stream.views.names.scope import NamedRelation
from penstock.stream.views.select_tree import full_name, function_name, is_aggregate, own_nodes
from penstock.stream.views.view_plan import NamedExpression, Operator, Project, output_columns

_OUTER_COLUMN = (
    "{name} is a column of the SELECT around this one: a subquery may use it in its WHERE, combined with AND, if it "
    "has no GROUP BY, LIMIT or window function there; otherwise join it, JOIN (SELECT ... GROUP BY id) t ON t.id = ..."
)


class Statement:
    """A statement whose names are resolved."""

    def __init__(
        self, source: SqlSource, relations: Mapping[str, NamedRelation], query: exp.Expr, names: Iterable[str]
    ) -> None:
        self.source = source
        self.relations = relations
        self._used: dict[str, dict[str, None]] = {}
        self._count = 0
        #: The columns of the result. Unlike those of relations, their names have no alias and may have any form.
        self._reserved = {name.lower() for name in names}
        trees = [query]
        for relation in relations.values():
            times = (relation.window_time, None if relation.sliding is None else relation.sliding.time)
            trees += [time for time in times if time is not None]
        for tree in trees:
            for column in tree.find_all(exp.Column):
                if column.table:
                    self._used.setdefault(column.table, {})[column.name] = None

    def used_columns(self, relation: NamedRelation) -> tuple[str, ...]:
        """Return the columns of a queue or a view that the statement uses."""
        computed = relation.computed if relation.sliding is not None else {}
        return tuple(name for name in self._used.get(relation.alias, {}) if name not in computed)

    def unique_name(self, base: str) -> str:
        """Return a name for a column that an operator computes. It has no dot, unlike those of relations."""
        while True:
            self._count += 1
            name = f"{base.replace('.', '_')}_{self._count}"
            if name.lower() not in self._reserved:
                return name

    def sql(self, node: exp.Expr, operator: Operator) -> str:
        """Return an expression as Spark SQL over the columns of an operator."""
        self.check_columns(node, operator)
        return to_sql(node)

    def check_columns(self, node: exp.Expr, operator: Operator) -> None:
        known = set(output_columns(operator))
        for column in node.find_all(exp.Column):
            if full_name(column) not in known:
                raise self.source.error(column, _OUTER_COLUMN.format(name=column.name))

    def project(self, operator: Operator, columns: Mapping[str, exp.Expr]) -> Project:
        named = [NamedExpression(name, self.sql(node, operator)) for name, node in columns.items()]
        return Project(operator, tuple(named))

    def check_row_expression(self, node: exp.Expr, clause: str) -> None:
        """Refuse aggregates and window functions where an expression is computed for each row."""
        for part in own_nodes(node):
            if isinstance(part, exp.Window):
                raise self.source.error(
                    part, f"{clause} is computed before window functions: write QUALIFY, or WHERE around a subquery"
                )
            if is_aggregate(part):
                name = function_name(part)
                advice = f"write HAVING {name}(...)" if clause == "WHERE" else "aggregate in a subquery"
                raise self.source.error(part, f"{clause} is computed for single rows, before aggregates: {advice}")
