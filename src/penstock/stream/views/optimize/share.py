"""Finds operators that compute the same rows, such as those of a subquery that is used twice, and makes them one.

The uses of a subquery have column names of their own. So each operator gets an identity that does not depend on names:
what it computes from which rows. Each of its columns gets a text that says the same of the column.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace

from penstock.stream.views.expressions import column_sql, plain_column, substitute_sql
from penstock.stream.views.select_tree import column
from penstock.stream.views.view_plan import (
    Aggregate,
    AggregateCall,
    Explode,
    Filter,
    Join,
    JoinKind,
    NamedExpression,
    Operator,
    Project,
    QueueSource,
    ReferenceSource,
    SortKey,
    TopN,
    UnionAll,
    ViewSource,
    WindowFunctions,
    output_columns,
)


def share_operators(root: Operator) -> Operator:
    """Return a plan in which operators with state that compute the same are equal."""
    return _Sharing().rewrite(root).operator


@dataclass(frozen=True)
class _Rows:
    """An operator, the identity of its rows, and that of each of its columns."""

    operator: Operator
    identity: Hashable
    columns: dict[str, str]
    #: How many operators below have added columns. It tells columns apart that are computed in the same way.
    depth: int = 0

    def sql(self, text: str | None) -> str | None:
        """The identity of an expression over the columns."""
        return (
            None if text is None else substitute_sql(text, {name: column(each) for name, each in self.columns.items()})
        )

    def texts(self, texts: Iterable[str]) -> tuple[str | None, ...]:
        return tuple(map(self.sql, texts))


@dataclass
class _Sharing:
    #: The first operator of each identity.
    _known: dict[Hashable, _Rows] = field(default_factory=dict)

    def rewrite(self, operator: Operator) -> _Rows:
        match operator:
            case (
                QueueSource(queue=name, columns=columns)
                | ViewSource(view=name, columns=columns)
                | ReferenceSource(table=name, columns=columns)
            ):
                kind = type(operator).__name__
                return _Rows(operator, (kind, name), {each.name: each.field for each in columns})
            case UnionAll(inputs=inputs):
                return self._rewrite_union([self.rewrite(each) for each in inputs])
            case Join():
                return self._rewrite_join(operator)
        rows = self.rewrite(operator.input)
        operator = replace(operator, input=rows.operator)
        match operator:
            case Project(columns=named):
                return replace(rows, operator=operator, columns={each.name: _column(rows, each.sql) for each in named})
            case Filter(condition=condition):
                return replace(rows, operator=operator, identity=("filter", rows.identity, rows.sql(condition)))
            case Explode(name=name, array_sql=array):
                return _adding(operator, rows, ("explode", rows.sql(array)), {name: "element"})
            case Aggregate():
                return self._share(_aggregate_rows(operator, rows))
            case TopN(limit=limit, rank_name=rank):
                order = _order(rows, operator.partition_by, operator.order_by)
                numbers = {} if rank is None else {rank: "rank"}
                return self._share(_adding(operator, rows, ("top", order, limit, rank is None), numbers))
            case WindowFunctions(functions=functions):
                order = _order(rows, operator.partition_by, operator.order_by)
                computed = {each.name: f"{rows.sql(each.sql)} {each.frame}" for each in functions}
                return self._share(_adding(operator, rows, ("over", order), computed))
        raise AssertionError(operator)

    def _rewrite_union(self, inputs: list[_Rows]) -> _Rows:
        operator = UnionAll(tuple(each.operator for each in inputs))
        names = output_columns(operator)
        parts = tuple((each.identity, tuple(map(each.columns.get, output_columns(each.operator)))) for each in inputs)
        return _Rows(operator, ("union", parts), {name: f"column {number}" for number, name in enumerate(names)})

    def _rewrite_join(self, join: Join) -> _Rows:
        left, right = self.rewrite(join.left), self.rewrite(join.right)
        sides = {name: f"left {each}" for name, each in left.columns.items()}
        others = {name: f"right {each}" for name, each in right.columns.items()}
        operator = replace(join, left=left.operator, right=right.operator)
        both = _Rows(operator, None, sides | others)
        keys = left.texts(join.left_keys), right.texts(join.right_keys)
        identity = ("join", join.kind, left.identity, right.identity, keys, both.sql(join.condition))
        is_one_sided = join.kind in (JoinKind.SEMI, JoinKind.ANTI)
        return self._share(_Rows(operator, identity, sides if is_one_sided else both.columns))

    def _share(self, rows: _Rows) -> _Rows:
        """Use the first operator with the same rows, if it has the same columns."""
        known = self._known.setdefault(rows.identity, rows)
        names = {each: name for name, each in known.columns.items()}
        if known is rows or any(each not in names for each in rows.columns.values()):
            return rows
        renamed = [NamedExpression(name, column_sql(names[each])) for name, each in rows.columns.items()]
        return replace(rows, operator=Project(known.operator, tuple(renamed)))


def _adding(operator: Operator, rows: _Rows, identity: tuple[Hashable, ...], columns: dict[str, str]) -> _Rows:
    """The rows of an operator that keeps the columns of its input and adds some."""
    added = {name: f"{each} {rows.depth}" for name, each in columns.items()}
    return _Rows(operator, (*identity, rows.identity), rows.columns | added, rows.depth + 1)


def _column(rows: _Rows, sql: str) -> str:
    name = plain_column(sql)
    return (rows.sql(sql) or "") if name is None else rows.columns[name]


def _aggregate_rows(operator: Aggregate, rows: _Rows) -> _Rows:
    groups = {group.name: f"group {rows.sql(group.sql)}" for group in operator.groups}
    calls = {call.name: str(_call(rows, call)) for call in operator.calls}
    return _Rows(operator, ("aggregate", rows.identity, tuple(groups.values())), groups | calls)


def _call(rows: _Rows, call: AggregateCall) -> AggregateCall:
    return replace(
        call, name="", argument=rows.sql(call.argument), filter=rows.sql(call.filter), order=rows.sql(call.order)
    )


def _order(rows: _Rows, partition_by: Iterable[str], order_by: Iterable[SortKey]) -> Hashable:
    return rows.texts(partition_by), tuple(replace(key, sql=rows.sql(key.sql) or "") for key in order_by)
