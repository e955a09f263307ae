"""The planner of a gated query reads on after the buffered events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock.engine.cycle_plan import SourceGroup
from penstock.engine.gates.gated_planner import GatedPlanner
from penstock.engine.gates.release_buffer import ReleaseBuffer
from penstock.engine.planning.planner import PlannerConfig
from penstock.stream.gates import Cost
from tests.engine.pipelines import Bench

QUERY = """
INSERT INTO penstock.queries (name, description, fingerprint, history_seconds) VALUES ('q', '{}', '', 0)
RETURNING id, fence
"""


class PlannedQuery:
    """A planner of three partitions with three events each."""

    def __init__(self, bench: Bench, conn: psycopg.Connection[Any]) -> None:
        self.conn = conn
        self.buffer = ReleaseBuffer([Cost()])
        query, fence = conn.execute(QUERY).fetchall()[0]
        queue_id, group_id = conn.execute("SELECT queue_id, id FROM penstock.groups").fetchall()[0]
        config = PlannerConfig(
            conninfo=bench.url,
            query_id=query,
            query="q",
            fence=fence,
            groups=[SourceGroup("calls", queue_id, "q", group_id)],
            lease_seconds=30.0,
            interval_seconds=0.0,
            small_events=1000,
            max_events=1000,
        )
        self.planner = GatedPlanner(config, self.buffer, 100)

    def next_plan(self, *, fails: bool = False, evicted: str | None = None) -> dict[str, tuple[int, int]]:
        """Run a cycle, and return the offsets that it reads of each key. ``evicted`` is evicted meanwhile."""
        plan = self.planner.next_cycle(0.5)
        assert plan is not None
        if evicted is not None:
            self.evict(evicted)
        if not fails:
            self.buffer.add(plan, [], None, [])
        return {partition.name: (partition.start, partition.stop) for partition in plan.partitions}

    def evict(self, key: str) -> None:
        self.buffer.evict(self.buffer.partitions_of(key))


@pytest.fixture
def query(bench: Bench) -> Iterator[PlannedQuery]:
    bench.queue("calls", "key")
    assert not bench.penstock.queue("calls").group("mine").pop(), "this only subscribes the group"
    bench.push(((f"t{t}", {"seq": i}) for i in range(3) for t in range(3)), "calls")
    with psycopg.connect(bench.url, autocommit=True) as conn:
        planned = PlannedQuery(bench, conn)
        yield planned
        planned.planner.close()


def test_a_parked_partition_is_read_on_from_its_read_ahead_position(bench: Bench, query: PlannedQuery) -> None:
    assert query.next_plan() == {"t0": (0, 3), "t1": (0, 3), "t2": (0, 3)}
    query.conn.execute("UPDATE penstock.cursors SET state = 3")
    bench.push([("t3", {"seq": 0})], "calls")
    assert query.next_plan() == {"t3": (0, 1)}
    query.conn.execute("UPDATE penstock.cursors SET state = 0")
    bench.push(((f"t{t}", {"seq": 3}) for t in range(3)), "calls")
    assert query.next_plan() == {"t0": (3, 4), "t1": (3, 4), "t2": (3, 4)}


def test_an_evicted_partition_is_read_again_from_the_position_of_the_group(bench: Bench, query: PlannedQuery) -> None:
    assert query.next_plan() == {"t0": (0, 3), "t1": (0, 3), "t2": (0, 3)}
    query.evict("t0")
    assert query.next_plan() == {"t0": (0, 3)}
    bench.push([("t0", {"seq": 3})], "calls")
    assert query.next_plan() == {"t0": (3, 4)}, "only once: the events are buffered again"


@pytest.mark.parametrize("fails", [True, False])
def test_a_partition_that_is_evicted_during_a_cycle_is_read_again(
    bench: Bench, query: PlannedQuery, fails: bool
) -> None:
    query.next_plan()
    bench.push([("t0", {"seq": 3})], "calls")
    assert query.next_plan(fails=fails, evicted="t0") == {"t0": (3, 4)}
    assert query.next_plan() == {"t0": (0, 4)}


def test_the_events_of_a_failed_cycle_are_read_again(query: PlannedQuery) -> None:
    first = query.next_plan(fails=True)
    assert query.next_plan() == first
