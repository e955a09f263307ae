"""What is at hand while lanes wait: planned, released, put back and read again.

Spark's part, to compute what the events of a cycle come to, is left out: the offset is all that they hold.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from penstock import token_bucket_gate
from penstock.core import json
from penstock.engine import plan as plans
from penstock.engine.cycle.models import Outcome, Target, Work
from penstock.engine.cycle.partials import Closing
from penstock.engine.gates import planner as planning_of_gates
from penstock.engine.gates import release as releasing
from penstock.engine.gates import release_loop as keeping
from penstock.engine.gates.admin import GateBook, GateChange
from penstock.engine.gates.planner import GatedPlanner, GatedPlanning
from penstock.engine.gates.release_loop import Keeper
from penstock.engine.plan import CyclePlan
from penstock.engine.planning import planner as cycles
from penstock.engine.worker.json_values import COST
from penstock.log.log import Log
from penstock.stream.definition import TimeRules
from penstock.stream.gates import NANO, TokenBucket
from tests.engine.gates import limiter
from tests.engine.oracle import micros
from tests.log.logs import eventually, opened, push

QUERY = """
INSERT INTO penstock.queries (name, description, fingerprint, history_seconds, sink_queue)
VALUES ('q', '{}', '', 0, 'out') RETURNING id, fence
"""
MOST = 8


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for a cycle while there is none is told so at once."""
    monkeypatch.setattr(cycles, "_PATIENCE_SECONDS", 0.02)
    monkeypatch.setattr(planning_of_gates, "_LOOK_SECONDS", 0.02)


@dataclass
class Driver:
    """A driver of a gated query, without Spark."""

    log: Log
    planner: GatedPlanner
    keeper: Keeper
    conn: psycopg.Connection[Any]
    chance: random.Random
    problems: list[BaseException] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def released(self) -> int:
        return sum(outcome.events_out for outcome in self.outcomes)

    async def cycle(self) -> bool:
        """What Spark does over and over: ask for a cycle, compute it, or fail to, and hand it over. False: for none."""
        cycle = await asyncio.to_thread(self.planner.next_cycle)
        if cycle is None:
            return False
        row = self.conn.execute("SELECT plan FROM penstock.cycles WHERE cycle = %s", [cycle]).fetchall()
        plan: CyclePlan = plans.decode(row[0][0])
        if self.chance.random() < 0.05:
            return True
        await asyncio.sleep(self.chance.choice([0, 0, 0.01, 0.05]))
        rows = [(lane, at) for lane in plan.lanes for at in range(lane.start, lane.stop)]
        table = pa.table(
            {
                "__partition": [lane.partition_id for lane, _ in rows],
                "__offset": [at for _, at in rows],
                f"{COST}0": [90 if lane.name == "dear" else 1 for lane, _ in rows],
            }
        )
        lines = [(lane.name, json.encode({"seq": at})) for lane, at in rows]
        await self.keeper.take(Work(plan, [], None, [], lines, datetime.now(UTC), {}), table)
        return True


@asynccontextmanager
async def driving(url: str, gate: TokenBucket, chance: random.Random) -> AsyncIterator[Driver]:
    async with opened(url) as log:
        with psycopg.connect(url, autocommit=True) as conn:
            for name in ("calls", "out"):
                await log.configure(name, partitioning="key")
            await log.subscribe("calls", "q")
            conn.execute("UPDATE penstock.groups SET query_id = 'q'")
            query, fence = conn.execute(QUERY.encode()).fetchall()[0]
            groups = conn.execute("SELECT queue_id, id FROM penstock.groups").fetchall()
            places = [("calls", queue, "q", group) for queue, group in groups]
            target = Target(
                query, "q", fence, 30.0, places, None, TimeRules(), Closing.BY_PARTITION, "out", "dead_letter", 0
            )
            planning = GatedPlanning(
                url, query, fence, (groups[0],), 30.0, 0.0, 1000, 1000, 1, None, 0, 0, None, None, 5
            )
            problems: list[BaseException] = []

            outcomes: list[Outcome] = []

            def done(outcome: Outcome, positions: dict[int, int]) -> None:
                assert positions
                outcomes.append(outcome)

            keeper = Keeper(log, target, [gate], done, problems.append)
            await keeper.prepare()
            planner = await asyncio.to_thread(GatedPlanner, planning)
            await keeper.start()
            try:
                yield Driver(log, planner, keeper, conn, chance, problems, outcomes)
            finally:
                await keeper.close()
                planner.close()


@pytest.mark.chaos
async def test_no_more_than_the_bound_is_at_hand_of_lanes_that_wait_however_many_they_are(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "MOST_AT_HAND", MOST)
    async with driving(database_url, token_bucket_gate(capacity=10, refill_per_sec=5), random.Random(0)) as driver:
        hand, book = driver.keeper._hand, GateBook(driver.log.database)
        await book.change("q", GateChange(paused=True))
        for t in range(30):
            await push(driver.log, [0, 0, 0], queue="calls", key=f"t{t}")

        def lanes(where: bytes) -> int:
            return len(driver.conn.execute(b"SELECT FROM penstock.gate_lanes WHERE " + where).fetchall())

        async def is_bounded() -> bool:
            return hand.size <= MOST

        while lanes(b"wakes_at IS NOT NULL") < 30:
            await driver.cycle()
        await eventually(is_bounded)
        assert hand.size == sum(map(len, hand.lanes.values()))
        await book.change("q", GateChange(paused=False))
        while lanes(b"allowed = 3") < 30:
            await driver.cycle()
        assert (driver.problems, hand.size, hand.lanes) == ([], 0, {})


@pytest.mark.chaos
async def test_lanes_that_share_a_gate_are_served_in_turn_also_where_they_are_too_many_for_one_release(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "_MOST_LANES", 3)
    lanes, each = 10, 6
    gate = token_bucket_gate(capacity=2, refill_per_sec=30, shared=True)
    async with driving(database_url, gate, random.Random(0)) as driver:
        for t in range(lanes):
            await push(driver.log, [0] * each, queue="calls", key=f"t{t}")
        while driver.released < lanes * each:
            await driver.cycle()
        events = sorted(await driver.log.browse("out", limit=1000), key=lambda event: event.appended_at)
        assert not driver.problems
    assert limiter.bucket_is_kept([(micros(event.appended_at), NANO) for event in events], 2 * NANO, 30 * NANO)
    got: dict[str | None, int] = dict.fromkeys((event.key for event in events), 0)
    for event in events:
        assert event.data == {"seq": got[event.key]}
        got[event.key] += 1
        assert max(got.values()) - min(got.values()) <= 3, "nobody is far ahead"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(GateChange(key="dear", paused=True), id="paused"),
        pytest.param(GateChange(key="dear", hold_seconds=3600), id="held"),
    ],
)
async def test_who_waits_for_a_dear_event_goes_on_when_that_may_not_pass_at_hand_or_not(
    database_url: str, monkeypatch: pytest.MonkeyPatch, change: GateChange
) -> None:
    monkeypatch.setattr(keeping, "MOST_AT_HAND", MOST)
    lanes = 10
    gate = token_bucket_gate(capacity=100, refill_per_sec=0.01, cost_fn=lambda event: 1, shared=True)
    async with driving(database_url, gate, random.Random(0)) as driver:
        hand, book = driver.keeper._hand, GateBook(driver.log.database)
        await push(driver.log, [0, 0], queue="calls", key="dear")
        while driver.released < 1:
            await driver.cycle()
        for t in range(lanes):
            await push(driver.log, [0], queue="calls", key=f"t{t}")
        laid_down = b"SELECT key FROM penstock.gate_lanes WHERE wakes_at IS NOT NULL"
        while len(driver.conn.execute(laid_down).fetchall()) < lanes + 1:
            await driver.cycle()

        async def are_put_back() -> bool:
            return hand.size <= MOST

        await eventually(are_put_back)
        assert hand.of("dear"), "whom the others wait for stays at hand"
        await book.change("q", change)
        while driver.released < 1 + lanes:
            await driver.cycle()
        assert not driver.problems
        assert driver.conn.execute(laid_down).fetchall() == [("dear",)]


async def test_a_driver_that_begins_looks_at_all_lanes_that_share_a_gate_but_those_that_are_paused(
    database_url: str,
) -> None:
    gate = token_bucket_gate(capacity=1, refill_per_sec=0.001, shared=True)
    async with driving(database_url, gate, random.Random(0)) as driver:
        for t in range(3):
            await push(driver.log, [0, 0], queue="calls", key=f"t{t}")
        laid_down = b"SELECT key FROM penstock.gate_lanes WHERE wakes_at IS NOT NULL"
        while len(driver.conn.execute(laid_down).fetchall()) < 3:
            await driver.cycle()
        await GateBook(driver.log.database).change("q", GateChange(key="t1", paused=True))

        async def is_paused() -> bool:
            return ("t1",) in driver.conn.execute(laid_down).fetchall()

        await eventually(is_paused)
        await driver.keeper.close()
        await driver.keeper.prepare()
        assert driver.conn.execute(laid_down).fetchall() == [("t1",)]
        assert driver.conn.execute("SELECT count(*) FROM penstock.cursors WHERE state = 3").fetchall() == [(1,)]


@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.chaos), pytest.param(3, marks=pytest.mark.chaos)]
)
async def test_whatever_is_put_back_passes_once_in_order_and_within_its_limit(
    database_url: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(keeping, "MOST_AT_HAND", MOST)
    monkeypatch.setattr(keeping, "_LOOK_SECONDS", 0.02)
    # Everything that waits is laid down, for as long as a bucket takes to have a token.
    monkeypatch.setattr(releasing, "_LONG_WAIT_US", 50_000)
    monkeypatch.setattr(releasing, "_EARLY_US", 20_000)
    lanes, each = (12, 9) if seed == 1 else (25, 12)
    gate = token_bucket_gate(capacity=2, refill_per_sec=6)
    async with driving(database_url, gate, chance) as driver:
        book = GateBook(driver.log.database)
        left = [f"t{t}" for t in range(lanes) for _ in range(each // 3)]
        chance.shuffle(left)
        put_back, passed = set(), 0
        while passed < lanes * each:
            for key in left[:8]:
                await push(driver.log, [0, 0, 0], queue="calls", key=key)
            del left[:8]
            if chance.random() < 0.2:
                key = f"t{chance.randrange(lanes)}"
                some: dict[str, Any] = chance.choice(
                    [{"weight": 2}, {"paused": True}, {"paused": False}, {"clear": True}]
                )
                await book.change("q", GateChange(key=key, **some))
            if not left and chance.random() < 0.1:
                await asyncio.to_thread(driver.conn.execute, b"DELETE FROM penstock.gate_limits")
            await driver.cycle()
            assert not driver.problems, driver.problems
            ((mark, passed),) = driver.conn.execute(
                "SELECT coalesce(sum(put_back), 0), coalesce(sum(allowed), 0) FROM penstock.gate_lanes"
            ).fetchall()
            put_back.add(mark)
        seen: dict[str, list[tuple[int, int, int]]] = {}
        for event in await driver.log.browse("out", limit=10_000):
            seen.setdefault(str(event.key), []).append((event.offset, event.data["seq"], micros(event.appended_at)))
    assert len(put_back) > 3, "what was read again was put back again"
    assert len(seen) == lanes
    for events in seen.values():
        events.sort()
        assert [seq for _, seq, _ in events] == list(range(each))
        assert limiter.bucket_is_kept([(at, NANO) for *_, at in events], 2 * NANO, 6 * NANO)
