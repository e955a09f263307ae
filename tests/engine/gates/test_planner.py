"""The read-ahead positions that the planner of a gated query remembers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock.engine.gates.planner import GatedPlanner, GatedPlannerConfig
from penstock.engine.source_group import SourceGroup
from tests.engine.pipelines import Bench

QUERY = """
INSERT INTO penstock.queries (name, description, fingerprint, history_seconds) VALUES ('q', '{}', '', 0)
RETURNING id, fence
"""
EVICT = """
INSERT INTO penstock.gate_lanes (query_id, partition_id, key, wants, decided_at, put_back)
SELECT q.id, t.id, t.name, 100, now(), %s FROM penstock.queries q, penstock.partitions t WHERE t.name = %s
ON CONFLICT (query_id, partition_id) DO UPDATE SET put_back = excluded.put_back
"""


class PlannedQuery:
    """A planner of three partitions with three events each."""

    def __init__(self, bench: Bench, conn: psycopg.Connection[Any]) -> None:
        self.conn = conn
        query, fence = conn.execute(QUERY).fetchall()[0]
        queue_id, group_id = conn.execute("SELECT queue_id, id FROM penstock.groups").fetchall()[0]
        self.planner = GatedPlanner(
            GatedPlannerConfig(
                conninfo=bench.url,
                query_id=query,
                query="q",
                fence=fence,
                groups=[SourceGroup("calls", queue_id, "q", group_id)],
                lease_seconds=30.0,
                interval_seconds=0.0,
                small_events=1000,
                max_events=1000,
                remembered_partitions=0,
            )
        )
        self.cycle = 0

    def next_plan(self, *, fails: bool = False) -> dict[str, tuple[int, int]]:
        """Plan a cycle, and return the offsets that it reads of each key."""
        plan = self.planner.next_cycle(0.5)
        assert plan is not None
        self.cycle = plan.cycle
        if fails:
            self.planner.cycle_failed()
        return {partition.name: (partition.start, partition.stop) for partition in plan.partitions}

    def evict(self, key: str, cycle: int) -> None:
        self.conn.execute(EVICT.encode(), [cycle, key])


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
    query.evict("t0", query.cycle)
    assert query.next_plan() == {"t0": (0, 3)}
    bench.push([("t0", {"seq": 3})], "calls")
    assert query.next_plan() == {"t0": (3, 4)}, "only once: the events are buffered again"


def test_an_eviction_during_a_failed_cycle_is_not_forgotten(bench: Bench, query: PlannedQuery) -> None:
    query.next_plan()
    first = query.cycle
    bench.push([("t0", {"seq": 3})], "calls")
    assert query.next_plan(fails=True) == {"t0": (3, 4)}
    query.evict("t0", first)
    assert query.next_plan() == {"t0": (0, 4)}


def test_the_planner_forgets_evicted_partitions(bench: Bench, query: PlannedQuery) -> None:
    query.next_plan()
    query.conn.execute("UPDATE penstock.cursors SET state = 3")
    for key in ("t0", "t1"):
        query.evict(key, query.cycle)
    bench.push([(f"more{n}", {"seq": 0}) for n in range(10)], "calls")
    query.next_plan()
    query.conn.execute("UPDATE penstock.cursors SET state = 3")
    bench.push([("last", {"seq": 0})], "calls")
    query.next_plan()
    assert len(query.planner.read_ahead) == 12, "one of the first three, ten more, and the last"
