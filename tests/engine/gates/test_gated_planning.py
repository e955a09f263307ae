"""What the planner of a gated query remembers of lanes that nobody looks at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock.engine import plan as plans
from penstock.engine.gates import planner
from penstock.engine.gates.planner import GatedPlanner, GatedPlanning
from penstock.engine.plan import CyclePlan
from tests.engine.pipelines import Bench

QUERY = """
INSERT INTO penstock.queries (name, description, fingerprint, history_seconds) VALUES ('q', '{}', '', 0)
RETURNING id, fence
"""


PUT_BACK = """
INSERT INTO penstock.gate_lanes (query_id, partition_id, key, wants, decided_at, put_back)
SELECT q.id, t.id, t.name, 100, now(), %s FROM penstock.queries q, penstock.partitions t WHERE t.name = %s
ON CONFLICT (query_id, partition_id) DO UPDATE SET put_back = excluded.put_back
"""


class Planned:
    """A planner of three lanes with three events each, and what its cycles read."""

    def __init__(self, bench: Bench, conn: psycopg.Connection[Any]) -> None:
        self.conn = conn
        query, fence = conn.execute(QUERY).fetchall()[0]
        group = conn.execute("SELECT queue_id, id FROM penstock.groups").fetchall()[0]
        self.planner = GatedPlanner(
            GatedPlanning(bench.url, query, fence, (group,), 30.0, 0.0, 1000, 1000, 1, None, 0, 0, None)
        )
        self.cycle = 0

    def next_plan(self, *, taken: bool = True) -> dict[str, tuple[int, int]]:
        self.cycle = self.planner.next_cycle() or 0
        row = self.conn.execute(
            "UPDATE penstock.cycles SET committed_at = CASE WHEN %s THEN now() END WHERE cycle = %s RETURNING plan",
            [taken, self.cycle],
        ).fetchall()
        plan: CyclePlan = plans.decode(row[0][0])
        return {lane.name: (lane.start, lane.stop) for lane in plan.lanes}

    def put_back(self, key: str, cycle: int) -> None:
        self.conn.execute(PUT_BACK.encode(), [cycle, key])

    def how_many_are_remembered(self) -> int:
        return len(self.planner._read)


@pytest.fixture
def planned(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Planned]:
    monkeypatch.setattr(planner, "_MOST_READ", 0)
    bench.queue("calls", "key")
    assert not bench.penstock.queue("calls").group("mine").pop(), "it is only to be subscribed"
    bench.push(((f"t{t}", {"seq": i}) for i in range(3) for t in range(3)), "calls")
    with psycopg.connect(bench.url, autocommit=True) as conn:
        made = Planned(bench, conn)
        yield made
        made.planner.close()


def test_a_lane_that_is_laid_down_is_read_on_where_it_was_read_up_to(bench: Bench, planned: Planned) -> None:
    assert planned.next_plan() == {"t0": (0, 3), "t1": (0, 3), "t2": (0, 3)}
    planned.conn.execute("UPDATE penstock.cursors SET state = 3")
    bench.push([("t3", {"seq": 0})], "calls")
    assert planned.next_plan() == {"t3": (0, 1)}
    planned.conn.execute("UPDATE penstock.cursors SET state = 0")
    bench.push(((f"t{t}", {"seq": 3}) for t in range(3)), "calls")
    assert planned.next_plan() == {"t0": (3, 4), "t1": (3, 4), "t2": (3, 4)}


def test_a_lane_that_was_put_back_is_read_again_from_where_the_group_stands(bench: Bench, planned: Planned) -> None:
    assert planned.next_plan() == {"t0": (0, 3), "t1": (0, 3), "t2": (0, 3)}
    planned.put_back("t0", planned.cycle)
    assert planned.next_plan() == {"t0": (0, 3)}
    bench.push([("t0", {"seq": 3})], "calls")
    assert planned.next_plan() == {"t0": (3, 4)}, "once: what was read after it is at hand"


def test_what_was_put_back_while_a_cycle_failed_that_had_not_seen_it_is_read_again(
    bench: Bench, planned: Planned
) -> None:
    planned.next_plan()
    first = planned.cycle
    bench.push([("t0", {"seq": 3})], "calls")
    assert planned.next_plan(taken=False) == {"t0": (3, 4)}
    planned.put_back("t0", first)
    assert planned.next_plan() == {"t0": (0, 4)}


def test_of_lanes_that_were_put_back_nothing_is_remembered(bench: Bench, planned: Planned) -> None:
    planned.next_plan()
    planned.conn.execute("UPDATE penstock.cursors SET state = 3")
    for key in ("t0", "t1"):
        planned.put_back(key, planned.cycle)
    bench.push([(f"more{n}", {"seq": 0}) for n in range(10)], "calls")
    planned.next_plan()
    planned.conn.execute("UPDATE penstock.cursors SET state = 3")
    bench.push([("last", {"seq": 0})], "calls")
    planned.next_plan()
    assert planned.how_many_are_remembered() == 12, "those that are at hand: one of the first, ten, and the last"
