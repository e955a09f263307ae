"""The matcher and the state of a join without Spark: random cycles find the pairs that ten lines of Python find."""

from __future__ import annotations

import hashlib
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest

from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.engine.cycle_plan import CyclePlan
from penstock.engine.joins.join_state import JOIN_OPERATOR, JOIN_SHARDS, LEFT, RIGHT, UNMATCHED, JoinState
from penstock.engine.joins.matcher import JoinMatcher
from penstock.engine.joins.pairs import PairEncoder
from penstock.engine.joins.unmatched_rows import UnmatchedRows
from penstock.engine.kernels.arrays import mask
from penstock.engine.state.operator_state import StateConfig
from penstock.engine.state.run_store import RunWriter
from penstock.engine.state.runs import HASH
from penstock.engine.worker.read_config import EMPTY_SCHEMA, ReadConfig

EXAMPLES = int(os.environ.get("PENSTOCK_TEST_JOIN_EXAMPLES", "2"))
#: The partitions of each side.
PARTITIONS = {LEFT: (0, 1), RIGHT: (2, 3, 4)}
T0 = 1_700_000_000_000_000
SCHEMA = pa.schema(
    [
        ("__partition", pa.int64()),
        ("__offset", pa.int64()),
        ("__key", pa.string()),
        ("__time", pa.int64()),
        ("__late", pa.bool_()),
        ("__side", pa.int8()),
        ("__k", pa.string()),
        ("__line", pa.string()),
        (HASH, pa.int64()),
    ]
)


@dataclass(frozen=True)
class Event:
    side: int
    partition: int
    offset: int
    key: str | None
    time: int

    @property
    def name(self) -> str:
        return f"{self.partition}/{self.offset}"


@dataclass
class Cycles:
    """Cycles of a join, whose state is in PostgreSQL."""

    url: str
    state: JoinState
    lateness: int
    conn: psycopg.Connection[Any]
    #: The highest event time of each partition.
    highs: dict[int, int] = field(default_factory=dict)
    found: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    accepted: list[Event] = field(default_factory=list)
    number: int = 0

    async def run(self, events: list[Event], limit: int, *, is_lost: bool = False, flush: bool = False) -> CyclePlan:
        """Compute a cycle, and commit it unless it is lost."""
        self.number += 1
        expired = (
            UnmatchedRows(self.state, self.conn).find_expired(limit) if self.state.is_outer and not flush else None
        )
        plan = CyclePlan(
            self.number,
            True,
            [],
            [],
            0 if expired is None else expired.count,
            closed_us=self.closed,
            expired_until=None if expired is None else expired.until,
        )
        highs, token = dict(self.highs), uuid4().hex
        rows = [self._row(event, highs) for event in events]
        in_time = [event for event, row in zip(events, rows, strict=True) if not row["__late"]]
        pairs: list[Any] = []
        if not flush:
            opened = self.state.open_on(self.conn, [LEFT, RIGHT, UNMATCHED], writer=RunWriter(token))
            config = ReadConfig("", 0, "q", EMPTY_SCHEMA, {}, None, 0, (), with_event_json=True)
            matcher = JoinMatcher(config, self.state, PairEncoder(EMPTY_SCHEMA, with_event_json=True))
            table = pa.Table.from_pylist(rows, schema=SCHEMA)
            late = table.column("__late").to_numpy()
            pairs = matcher.join(mask(table, ~late), opened, plan).to_pylist()
        if is_lost:
            return plan
        async with Database(Settings(database_url=self.url)) as database, database.connection() as conn:
            flushed = await self.state.last_end(conn) if flush else None
            await self.state.apply(conn, plan, "" if flush else token, flushed)
        self.highs, self.accepted = highs, [*self.accepted, *in_time]
        self.found.update((pair["__left"], pair["__right"]) for pair in pairs)
        every = [partition for partitions in PARTITIONS.values() for partition in partitions]
        closed = min(highs[each] for each in every) - self.lateness if len(highs) == len(every) else None
        self.conn.execute(
            "UPDATE penstock.queries SET closed_us = greatest(closed_us, %s)", (flushed if flush else closed,)
        )
        return plan

    @property
    def closed(self) -> int | None:
        (closed,) = self.conn.execute("SELECT closed_us FROM penstock.queries").fetchone() or (None,)
        return None if closed is None else int(closed)

    def count(self, condition: str) -> int:
        question = f"SELECT coalesce(sum(rows), 0)::bigint FROM penstock.state_runs WHERE is_current AND {condition}"  # noqa: S608
        return int((self.conn.execute(question.encode()).fetchone() or (0,))[0])

    def _row(self, event: Event, highs: dict[int, int]) -> dict[str, Any]:
        high = highs.get(event.partition)
        highs[event.partition] = event.time if high is None else max(high, event.time)
        digest = hashlib.md5(str(event.key).encode(), usedforsecurity=False).digest()
        return {
            "__partition": event.partition,
            "__offset": event.offset,
            "__key": f"key of {event.name}",
            "__time": event.time,
            "__late": high is not None and event.time < high - self.lateness,
            "__side": event.side,
            "__k": event.key,
            "__line": event.name,
            HASH: int.from_bytes(digest[:8], signed=True),
        }


def oracle(events: list[Event], state: JoinState) -> Counter[tuple[str, str | None]]:
    pairs: Counter[tuple[str, str | None]] = Counter()
    rights = [event for event in events if event.side == RIGHT]
    for left in (event for event in events if event.side == LEFT):
        partners: list[str | None] = [
            right.name
            for right in rights
            if left.key is not None
            and left.key == right.key
            and left.time - state.before_us <= right.time <= left.time + state.after_us
        ]
        pairs.update((left.name, partner) for partner in partners or ([None] if state.is_outer else []))
    return pairs


def random_events(chance: random.Random, count: int, disorder: int) -> list[Event]:
    """Events of all partitions, about in the order of their times."""
    events, offsets = [], Counter[int]()
    ahead = chance.choice([LEFT, RIGHT])
    for number in range(count):
        side = chance.choice([LEFT, RIGHT])
        partition = chance.choice(PARTITIONS[side])
        time = T0 + number * 1000 + chance.randrange(disorder + 1) + (side == ahead) * 20_000
        key = chance.choice(["a", "b", "c", None, f"k{chance.randrange(100)}"])
        events.append(Event(side, partition, offsets[partition], key, time))
        offsets[partition] += 1
    return events


@pytest.fixture
def conn(database_url: str) -> Any:
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(
            "INSERT INTO penstock.queries (name, description, fingerprint, history_seconds) VALUES ('q', '{}', '', 1)"
        )
        yield conn


def cycles_of(
    url: str, conn: psycopg.Connection[Any], before: int, after: int, lateness: int, *, outer: bool
) -> Cycles:
    state = JoinState(StateConfig(url, 1, JOIN_OPERATOR, JOIN_SHARDS), before, after, outer)
    return Cycles(url, state, lateness, conn)


@pytest.mark.parametrize("seed", range(4 * EXAMPLES))
async def test_random_cycles_find_each_pair_once(database_url: str, conn: psycopg.Connection[Any], seed: int) -> None:
    chance = random.Random(seed)
    before, after = chance.choice([(0, 5000), (20_000, 20_000), (1, 0), (3000, 2**33)])
    lateness = chance.choice([0, 5_000, 10**7])
    cycles = cycles_of(database_url, conn, before, after, lateness, outer=seed % 2 == 0)
    unread = random_events(chance, 400, chance.choice([0, 3000, 60_000]))
    while unread:
        size, limit = chance.choice([1, 20, 100]), chance.choice([1, 7, 1000])
        # The partitions are read unevenly, each in its order.
        skipped = chance.randrange(5)
        read = [event for event in unread if event.partition != skipped][:size] or unread[:size]
        if chance.random() < 0.2:
            await cycles.run(read, limit, is_lost=True)
        plan = await cycles.run(read, limit)
        assert plan.expired_rows <= limit
        unread = [event for event in unread if event not in read]
    await cycles.run([], 0, flush=True)
    while cycles.state.is_outer and (await cycles.run([], 10)).expired_rows:
        pass
    assert cycles.found == oracle(cycles.accepted, cycles.state)
    assert cycles.count("true") == 0


async def test_expired_rows_are_emitted_in_the_order_of_their_times(
    database_url: str, conn: psycopg.Connection[Any]
) -> None:
    cycles = cycles_of(database_url, conn, 10, 10, 10**7, outer=True)
    times = random.Random(1).sample(range(100), 40)
    await cycles.run([Event(LEFT, 0, number, f"k{number}", T0 + time) for number, time in enumerate(times)], 100)
    await cycles.run([], 0, flush=True)
    emitted: list[int] = []
    for limit in (1, 7, 100):
        known = set(cycles.found)
        await cycles.run([], limit)
        emitted += sorted(times[int(name.split("/")[1])] for name, _ in set(cycles.found) - known)
        assert len(emitted) == min(40, len(known) + limit)
    assert emitted == sorted(times)


@pytest.mark.parametrize("outer", [True, False])
async def test_the_state_shrinks_as_the_watermark_advances(
    database_url: str, conn: psycopg.Connection[Any], outer: bool
) -> None:
    cycles = cycles_of(database_url, conn, 1000, 1000, 0, outer=outer)
    every = [partition for partitions in PARTITIONS.values() for partition in partitions]
    offsets, largest = Counter[int](), 0
    for number in range(60):
        events = []
        for place in range(100):
            partition = every[place % 5]
            # Each cycle has an event of a far future, so that no run expires as a whole.
            is_far = partition == PARTITIONS[LEFT][1]
            if is_far and place > 10:
                continue
            time = T0 + number * 1000 + place * 10 + (10**9 if is_far else 0)
            side = LEFT if partition in PARTITIONS[LEFT] else RIGHT
            events.append(Event(side, partition, offsets[partition], f"k{number}-{place}", time))
            offsets[partition] += 1
        await cycles.run(events, 1000)
        largest = max(largest, cycles.count(f"part < {UNMATCHED}"))
    # Each cycle adds a hundred rows, of which those of two or three cycles can still find a match.
    assert largest < 1000
