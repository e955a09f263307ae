"""Random plans over an operator whose groups expire, and the events that are left of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.stream.views.view_plan import (
    Aggregate,
    Join,
    JoinKind,
    Operator,
    QueueSource,
    SourceColumn,
    TopN,
    ViewSource,
    WindowFunctions,
)
from tests.engine.views.compile.random_plans import FIELDS, Plan, PlanGenerator
from tests.engine.views.compile.view_cycles import CHANGES, QUEUES, PlanRun, RandomCycles, to_events
from tests.engine.views.operators.changing_rows import Row

SECOND = 1_000_000
TTL_US = 5 * SECOND

_Group = tuple[Any, ...]


class ExpiringPlans(PlanGenerator):
    """Plans of which only the lowest operators read events, all in the same way."""

    def __init__(self, chance: random.Random, kind: str) -> None:
        super().__init__(chance)
        self._is_lowest_made = False
        self._reads = "q1"
        makers = {"aggregate": self._aggregate, "top n": self._top_n, "over": self._window_functions}
        self.lowest = makers.get(kind, self._lowest_join)(0)
        self._is_lowest_made = True

    def _source(self) -> Plan:
        if self._is_lowest_made:
            return self._rename(self.lowest, self.lowest.names("int", "text", "decimal"))
        names = {field: next(self._names) for field in FIELDS}
        columns = tuple(SourceColumn(name, field) for field, name in names.items())
        kinds = {name: FIELDS[field] for field, name in names.items()}
        return Plan(ViewSource("v", columns) if self._reads == "v" else QueueSource(self._reads, columns), kinds)

    def _lowest_join(self, depth: int) -> Plan:
        left = self._source()
        self._reads = self._chance.choice(["q2", "q2", "v"])
        right = self._source()
        if self._chance.random() < 0.2:
            left, right = right, left
        names = [list(plan.kinds) for plan in (left, right)]
        numbers = self._chance.sample(range(len(FIELDS)), self._chance.choice([1, 2]))
        keys = [tuple(f"`{side[number]}`" for number in numbers) for side in names]
        condition = f"`{names[0][1]}` > `{names[1][1]}`" if self._chance.random() < 0.4 else None
        kind = self._chance.choice(list(JoinKind))
        is_one_sided = kind in (JoinKind.SEMI, JoinKind.ANTI)
        return Plan(
            Join(left.operator, right.operator, kind, keys[0], keys[1], condition),
            left.kinds if is_one_sided else left.kinds | right.kinds,
        )


class ExpiringCycles(RandomCycles):
    """Cycles at times that the test sets, and the events whose groups have not expired."""

    def __init__(self, chance: random.Random, run: PlanRun, lowest: Operator) -> None:
        super().__init__(chance, run)
        self._lowest = lowest
        #: The fields that are the group of an event, by source.
        self._groups = _group_fields(lowest)
        self._changed: dict[_Group, int] = {}

    def cycle(self, *, is_single: bool, fails: bool = False) -> None:
        known = {queue: len(events) for queue, events in self.events.items()}
        before = dict(self.view.rows)
        super().cycle(is_single=is_single, fails=fails)
        rows = [(queue, row) for queue in QUEUES for row in self.events[queue][known[queue] :]]
        for row_id in before.keys() | self.view.rows.keys():
            if before.get(row_id) != self.view.rows.get(row_id):
                rows += [("v", each[row_id]) for each in (before, self.view.rows) if row_id in each]
        for source, row in rows:
            group = self._group(source, row)
            if group is not None:
                self._changed[group] = self._run.now_us

    def expire(self, *, is_single: bool, fails: bool = False) -> None:
        """Run a cycle without events that expires groups."""
        tables = {queue: to_events([]) for queue in QUEUES} | {"v": pa.Table.from_pylist([], CHANGES)}
        if fails:
            self._run.compute(tables, is_single=is_single, is_expiry=True)
            self._run.now_us += SECOND
        self._run.cycle(tables, is_single=is_single, is_expiry=True)
        expired = {group for group, at in self._changed.items() if self._run.now_us - at >= TTL_US}
        for group in expired:
            del self._changed[group]
        for queue, events in self.events.items():
            self.events[queue] = [row for row in events if self._group(queue, row) not in expired]

    def _group(self, source: str, row: Row) -> _Group | None:
        """The group of a row; None for other sources and for the null of a join key."""
        if source not in self._groups:
            return None
        values = tuple(row[field] for field in self._groups[source])
        return None if isinstance(self._lowest, Join) and None in values else values


def _group_fields(operator: Operator) -> dict[str, tuple[str, ...]]:
    match operator:
        case Aggregate(input=source, groups=groups):
            return _fields(source, [group.sql for group in groups])
        case TopN(input=source, partition_by=columns) | WindowFunctions(input=source, partition_by=columns):
            return _fields(source, columns)
        case Join(left=left, right=right, left_keys=left_keys, right_keys=right_keys):
            return _fields(left, left_keys) | _fields(right, right_keys)
    raise TypeError(operator)


def _fields(source: Operator, columns: Sequence[str]) -> dict[str, tuple[str, ...]]:
    assert isinstance(source, QueueSource | ViewSource)
    fields = {f"`{column.name}`": column.field for column in source.columns}
    name = source.queue if isinstance(source, QueueSource) else source.view
    return {name: tuple(fields[column] for column in columns)}
