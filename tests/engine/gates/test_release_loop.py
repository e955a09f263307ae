"""The release loop with its planner: events are buffered, released, evicted and read again.

The tests run without Spark: an event holds nothing but its offset.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
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
from penstock.engine.cycle.cycle_result import CommitStats, CommitTarget, CycleResult
from penstock.engine.cycle.partials import WatermarkScope
from penstock.engine.cycle_plan import SourceGroup
from penstock.engine.gates.gate_admin import GateAdmin, GateChange
from penstock.engine.gates.gated_planner import GatedPlanner
from penstock.engine.gates.release import ReleaseTuning
from penstock.engine.gates.release_loop import ReleaseLoop
from penstock.engine.planning.planner import PlannerConfig
from penstock.engine.results.output_rows import OutputRows
from penstock.engine.worker.json_values import COST_PREFIX
from penstock.log.log import Log
from penstock.stream.gates import NANOS_PER_TOKEN as TOKEN
from penstock.stream.gates import TokenBucketGate
from penstock.stream.time_rules import TimeRules
from tests.conditions import eventually_async
from tests.engine.gates import ideal_limiter
from tests.engine.oracle import micros
from tests.log.logs import opened, push

QUERY = """
INSERT INTO penstock.queries (name, description, fingerprint, history_seconds, sink_queue)
VALUES ('q', '{}', '', 0, 'out') RETURNING id, fence
"""
PARKED = b"SELECT key FROM penstock.gate_keys WHERE wakes_at IS NOT NULL"
BUFFER_SIZE = 8


@dataclass
class GatedDriver:
    """A driver of a gated query, without Spark."""

    log: Log
    planner: GatedPlanner
    loop: ReleaseLoop
    conn: psycopg.Connection[Any]
    chance: random.Random
    failures: list[BaseException] = field(default_factory=list)
    releases: list[CommitStats] = field(default_factory=list)
    #: How often each offset of each key was read.
    reads: Counter[tuple[str, int]] = field(default_factory=Counter)

    @property
    def released(self) -> int:
        return sum(stats.events_out for stats in self.releases)

    @property
    def parked(self) -> list[tuple[str]]:
        return self.conn.execute(PARKED).fetchall()

    async def run_cycle(self) -> None:
        """Plan a cycle and, unless there is none or it fails, add its events to the buffer."""
        plan = await asyncio.to_thread(self.planner.next_cycle, 0.02)
        if plan is None:
            return
        if self.chance.random() < 0.05:
            return
        await asyncio.sleep(self.chance.choice([0, 0, 0.01, 0.05]))
        rows = [
            (partition, offset) for partition in plan.partitions for offset in range(partition.start, partition.stop)
        ]
        self.reads.update((partition.name, offset) for partition, offset in rows)
        table = pa.table(
            {
                "__partition": [partition.partition_id for partition, _ in rows],
                "__offset": [offset for _, offset in rows],
                f"{COST_PREFIX}0": [90 if partition.name == "expensive" else 1 for partition, _ in rows],
            }
        )
        outputs = [(partition.name, json.encode({"seq": offset})) for partition, offset in rows]
        await self.loop.add_cycle(CycleResult(plan, [], None, [], OutputRows.of(outputs), datetime.now(UTC), {}), table)


@asynccontextmanager
async def running(
    url: str, gate: TokenBucketGate, tuning: ReleaseTuning | None = None, chance: random.Random | None = None
) -> AsyncIterator[GatedDriver]:
    async with opened(url) as log:
        with psycopg.connect(url, autocommit=True) as conn:
            for name in ("calls", "out"):
                await log.configure(name, partitioning="key")
            await log.subscribe("calls", "q")
            conn.execute("UPDATE penstock.groups SET query_id = 'q'")
            query, fence = conn.execute(QUERY.encode()).fetchall()[0]
            ((queue_id, group_id),) = conn.execute("SELECT queue_id, id FROM penstock.groups").fetchall()
            groups = [SourceGroup("calls", queue_id, "q", group_id)]
            scope = WatermarkScope.PARTITION
            target = CommitTarget(query, "q", fence, 30.0, groups, None, TimeRules(), scope, "out", "dead_letter", 0)
            config = PlannerConfig(
                conninfo=url,
                query_id=query,
                query="q",
                fence=fence,
                groups=groups,
                lease_seconds=30.0,
                interval_seconds=0.0,
                small_events=1000,
                max_events=1000,
            )
            failures: list[BaseException] = []
            releases: list[CommitStats] = []

            def on_release(stats: CommitStats, positions: dict[int, int]) -> None:
                assert positions
                releases.append(stats)

            loop = ReleaseLoop(log, target, [gate], on_release, failures.append, tuning)
            await loop.prepare()
            planner = await asyncio.to_thread(GatedPlanner, config, loop.buffer, 5)
            await loop.start()
            try:
                yield GatedDriver(log, planner, loop, conn, chance or random.Random(0), failures, releases)
            finally:
                await loop.close()
                planner.close()


@pytest.mark.long
async def test_the_buffer_of_waiting_partitions_is_bounded(database_url: str) -> None:
    gate = token_bucket_gate(capacity=10, refill_per_sec=5)
    async with running(database_url, gate, ReleaseTuning(max_buffer_size=BUFFER_SIZE)) as driver:
        buffer, admin = driver.loop.buffer, GateAdmin(driver.log.database)
        await admin.change("q", GateChange(paused=True))
        for t in range(30):
            await push(driver.log, [0, 0, 0], queue="calls", key=f"t{t}")

        async def is_bounded() -> bool:
            return buffer.size <= BUFFER_SIZE

        while len(driver.parked) < 30:
            await driver.run_cycle()
        await eventually_async(is_bounded)
        assert buffer.size == sum(map(len, buffer.partitions.values()))
        await admin.change("q", GateChange(paused=False))
        drained = b"SELECT FROM penstock.gate_keys WHERE allowed = 3"
        while len(driver.conn.execute(drained).fetchall()) < 30:
            await driver.run_cycle()
        assert (driver.failures, buffer.size, buffer.partitions) == ([], 0, {})


@pytest.mark.long
async def test_partitions_of_a_shared_gate_are_served_in_turn_over_several_releases(database_url: str) -> None:
    partitions, each = 10, 6
    gate = token_bucket_gate(capacity=2, refill_per_sec=30, shared=True)
    async with running(database_url, gate, ReleaseTuning(max_partitions=3)) as driver:
        for t in range(partitions):
            await push(driver.log, [0] * each, queue="calls", key=f"t{t}")
        while driver.released < partitions * each:
            await driver.run_cycle()
        events = sorted(await driver.log.browse("out", limit=1000), key=lambda event: event.appended_at)
        assert not driver.failures
    assert ideal_limiter.respects_bucket(
        [(micros(event.appended_at), TOKEN) for event in events], 2 * TOKEN, 30 * TOKEN
    )
    got: dict[str | None, int] = dict.fromkeys((event.key for event in events), 0)
    for event in events:
        assert event.data == {"seq": got[event.key]}
        got[event.key] += 1
        assert max(got.values()) - min(got.values()) <= 3, "no partition is far ahead"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(GateChange(key="expensive", paused=True), id="paused"),
        pytest.param(GateChange(key="expensive", hold_seconds=3600), id="held"),
    ],
)
async def test_a_reservation_ends_when_its_partition_is_paused_or_held(database_url: str, change: GateChange) -> None:
    partitions = 10
    gate = token_bucket_gate(capacity=100, refill_per_sec=0.01, cost_fn=lambda event: 1, shared=True)
    async with running(database_url, gate, ReleaseTuning(max_buffer_size=BUFFER_SIZE)) as driver:
        buffer, admin = driver.loop.buffer, GateAdmin(driver.log.database)
        await push(driver.log, [0, 0], queue="calls", key="expensive")
        while driver.released < 1:
            await driver.run_cycle()
        for t in range(partitions):
            await push(driver.log, [0], queue="calls", key=f"t{t}")
        while len(driver.parked) < partitions + 1:
            await driver.run_cycle()

        async def is_evicted() -> bool:
            return buffer.size <= BUFFER_SIZE

        await eventually_async(is_evicted)
        assert buffer.partitions_of("expensive"), "the partition with the reservation stays in the buffer"
        await admin.change("q", change)
        while driver.released < 1 + partitions:
            await driver.run_cycle()
        assert not driver.failures
        assert driver.parked == [("expensive",)]


async def test_a_new_driver_resumes_the_parked_partitions_of_a_shared_gate_except_paused_ones(
    database_url: str,
) -> None:
    gate = token_bucket_gate(capacity=1, refill_per_sec=0.001, shared=True)
    async with running(database_url, gate) as driver:
        for t in range(3):
            await push(driver.log, [0, 0], queue="calls", key=f"t{t}")
        while len(driver.parked) < 3:
            await driver.run_cycle()
        await GateAdmin(driver.log.database).change("q", GateChange(key="t1", paused=True))

        async def is_paused() -> bool:
            return ("t1",) in driver.parked

        await eventually_async(is_paused)
        await driver.loop.close()
        await driver.loop.prepare()
        assert driver.parked == [("t1",)]
        assert driver.conn.execute("SELECT count(*) FROM penstock.cursors WHERE state = 3").fetchall() == [(1,)]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.slow
async def test_evicted_events_are_released_once_in_order_and_within_the_limit(database_url: str, seed: int) -> None:
    chance = random.Random(seed)
    # Every partition that waits for a token is parked.
    tuning = ReleaseTuning(max_buffer_size=BUFFER_SIZE, poll_seconds=0.02, park_after_us=50_000, resume_early_us=20_000)
    partitions, each = (12, 9) if seed == 1 else (25, 12)
    gate = token_bucket_gate(capacity=2, refill_per_sec=6)
    async with running(database_url, gate, tuning, chance) as driver:
        admin = GateAdmin(driver.log.database)
        unpushed = [f"t{t}" for t in range(partitions) for _ in range(each // 3)]
        chance.shuffle(unpushed)
        released = 0
        while released < partitions * each:
            for key in unpushed[:8]:
                await push(driver.log, [0, 0, 0], queue="calls", key=key)
            del unpushed[:8]
            if chance.random() < 0.2:
                key = f"t{chance.randrange(partitions)}"
                change: dict[str, Any] = chance.choice(
                    [{"weight": 2}, {"paused": True}, {"paused": False}, {"clear": True}]
                )
                await admin.change("q", GateChange(key=key, **change))
            if not unpushed and chance.random() < 0.1:
                await asyncio.to_thread(driver.conn.execute, b"DELETE FROM penstock.gate_limits")
            await driver.run_cycle()
            assert not driver.failures, driver.failures
            ((released,),) = driver.conn.execute("SELECT coalesce(sum(allowed), 0) FROM penstock.gate_keys").fetchall()
        seen: dict[str, list[tuple[int, int, int]]] = {}
        for event in await driver.log.browse("out", limit=10_000):
            seen.setdefault(str(event.key), []).append((event.offset, event.data["seq"], micros(event.appended_at)))
    assert max(driver.reads.values()) > 3, "events that were read again were evicted again"
    assert len(seen) == partitions
    for events in seen.values():
        events.sort()
        assert [seq for _, seq, _ in events] == list(range(each))
        assert ideal_limiter.respects_bucket([(at, TOKEN) for _, _, at in events], 2 * TOKEN, 6 * TOKEN)
