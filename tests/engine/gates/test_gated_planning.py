"""What the planner of a gated query remembers of lanes that nobody looks at."""

from __future__ import annotations

import psycopg
import pytest

from penstock.engine import plan as plans
from penstock.engine.gates import planning
from penstock.engine.gates.planning import GatedPlanner, GatedPlanning
from penstock.engine.plan import CyclePlan
from tests.engine.pipelines import Bench

QUERY = """
INSERT INTO penstock.queries (name, description, fingerprint, history_seconds) VALUES ('q', '{}', '', 0)
RETURNING id, fence
"""


def test_a_lane_that_is_laid_down_is_read_on_where_it_was_read_up_to(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "_MOST_READ", 0)
    bench.queue("calls", "key")
    assert not bench.penstock.queue("calls").group("mine").pop(), "it is only to be subscribed"
    bench.push(((f"t{t}", {"seq": i}) for i in range(3) for t in range(3)), "calls")
    with psycopg.connect(bench.url, autocommit=True) as conn:
        query, fence = conn.execute(QUERY).fetchall()[0]
        group = conn.execute("SELECT queue_id, id FROM penstock.groups").fetchall()[0]
        planner = GatedPlanner(
            GatedPlanning(bench.url, query, fence, (group,), 30.0, 0.0, 1000, 1000, 1, None, 0, 0, None)
        )

        def next_plan() -> dict[str, tuple[int, int]]:
            cycle = planner.next_cycle()
            row = conn.execute(
                "UPDATE penstock.cycles SET committed_at = now() WHERE cycle = %s RETURNING plan", [cycle]
            ).fetchall()
            plan: CyclePlan = plans.decode(row[0][0])
            return {lane.name: (lane.start, lane.stop) for lane in plan.lanes}

        assert next_plan() == {"t0": (0, 3), "t1": (0, 3), "t2": (0, 3)}
        conn.execute("UPDATE penstock.cursors SET state = 3")
        bench.push([("t3", {"seq": 0})], "calls")
        assert next_plan() == {"t3": (0, 1)}
        conn.execute("UPDATE penstock.cursors SET state = 0")
        bench.push(((f"t{t}", {"seq": 3}) for t in range(3)), "calls")
        assert next_plan() == {"t0": (3, 4), "t1": (3, 4), "t2": (3, 4)}
        planner.close()
