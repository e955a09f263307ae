"""What waits in a join of streams: it is looked at when it is read, and leaves in parts, whatever is in it."""

from __future__ import annotations

import random
import time
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from psycopg import AsyncConnection

from penstock import Stream
from penstock.core.errors import Refused
from penstock.core.settings import Settings
from penstock.db.pg_arrays import numbers
from penstock.db.pool import Database
from penstock.engine.cycle.commit import Committer
from penstock.engine.joins import state as join_state
from penstock.engine.joins.state import FRESH, Kept, WaitingTable
from penstock.engine.plan import CyclePlan, Lane, Stretch
from penstock.engine.planning import poison_search
from penstock.engine.planning.poison_search import Suspicion
from tests.engine.pipelines import NEVER_IDLE, T0, Bench, eventually

RULES: dict[str, Any] = {"event_time": "ts", "idle_flush_seconds": NEVER_IDLE, "within": 60, "how": "left"}


def push(bench: Bench, queue: str, *events: dict[str, Any]) -> None:
    bench.push([(event["k"], {"ts": T0, **event}) for event in events], queue)


@pytest.fixture
def queues(bench: Bench) -> Bench:
    for queue in ("lefts", "rights", "pairs"):
        bench.queue(queue, partitions=1)
    return bench


def test_an_event_that_no_pair_can_be_made_of_costs_nobody_else(queues: Bench) -> None:
    def measured(event: dict[str, Any]) -> dict[str, Any]:
        return {**event, "size": "large" if event["n"] > 9 else event["n"] * 2}

    bench = queues
    # Of one side the reader sees what does not fit, of the other the function in its middle.
    right = Stream.from_("rights").filter("n > 0").map(measured, name="measured")
    made = Stream.from_("lefts", schema={"at": "timestamp"}).join(right, on="k", **RULES)
    made = made.map(
        "left.k AS k, left.total + coalesce(right.size, 0) AS total, CAST(left.at AS string) AS at, "
        "CAST(left.code AS int) AS code, right IS NULL AS is_alone"
    )
    made = made.to("pairs")
    anything: dict[str, Any] = {"and": "nobody looks into it"}
    push(
        bench,
        "lefts",
        {"k": "a", "total": 1.5, "at": "2026-01-31T12:00:00Z", "code": "1"},
        {"k": "b", "total": 1.5, "note": "of other types"},
        {"k": "c", "total": "n/a"},
        {"k": "d", "total": 1.5, "at": "n/a"},
        {"k": "e", "total": 2.5},
        {"k": "f", "total": 1.5, "code": "many"},
        {"k": "g", "total": 1.5, "code": "7", "note": anything},
    )
    push(bench, "rights", {"k": "a", "n": 1, "note": anything}, {"k": "b", "n": 10}, {"k": "c", "n": 1, "note": 5})
    query = bench.run(made, flush=False)
    letters = [(letter.data["k"], letter.stage) for queue in ("lefts", "rights") for letter in bench.letters(queue)]
    assert letters == [("c", "parse"), ("d", "parse"), ("b", "measured")]
    assert query.status.failed_cycles == 0
    # As one may wait that was read when nobody looked into it.
    odd = """replace(line, '2.5', '"n/a"')"""
    assert bench.ask(f"UPDATE penstock.waiting_1 SET line = {odd} WHERE line <> {odd} RETURNING 1") == 1  # noqa: S608
    bench.run(made)

    names = ("k", "total", "at", "code", "is_alone")
    assert sorted(tuple(event[name] for name in names) for event in bench.emitted("pairs")) == [
        ("a", 3.5, "2026-01-31 12:00:00", 1, False),
        ("b", 1.5, None, None, True),
        ("e", None, None, None, True),
        ("g", 1.5, None, 7, True),
    ]
    # What an expression fails for is found where it waited.
    (letter,) = [letter for letter in bench.letters("lefts") if letter.stage == "cycle"]
    assert (letter.key, letter.data["code"], letter.attempts) == ("f", "many", poison_search.TRIES)
    assert "no cycle survives it: " in letter.error
    assert len(bench.letters("rights")) == 1
    assert bench.ask("SELECT suspicion IS NULL FROM penstock.queries")


@pytest.mark.chaos
def test_what_has_expired_leaves_in_parts_each_once_and_one_that_no_cycle_survives_costs_nobody_else(
    queues: Bench,
) -> None:
    """Whenever the driver is lost: here with a part that is computed, and with one that is committed unknown to it."""
    bench = queues
    made = Stream.from_("lefts").join(Stream.from_("rights"), on="k", **RULES)
    made = made.map("left.k AS k, CAST(left.n AS int) AS n, right.k AS r").to("pairs")
    numbers = [{"k": f"k{i}", "ts": T0 + 30 - i, "n": "many" if i == 12 else str(i)} for i in range(30)]
    push(bench, "lefts", *numbers)
    push(bench, "rights", {"k": "k7"})
    real, parts = Committer.commit, 0

    async def commit(self: Committer, work: Any) -> Any:
        nonlocal parts
        parts += work.kept is not None and work.kept.alone > 1
        if parts == 1:
            parts += 1
            raise Refused("lost before the commit")
        outcome = await real(self, work)
        if parts == 3:
            parts += 1
            raise Refused("lost after the commit")
        return outcome

    with mock.patch.object(Committer, "commit", commit):
        bench.run(made, max_events_per_cycle=8)

    assert parts > 4
    found = bench.emitted("pairs")
    assert sorted((event["n"], event["r"]) for event in found) == [
        (i, "k7" if i == 7 else None) for i in range(30) if i != 12
    ]
    (letter,) = bench.letters("lefts")
    assert (letter.stage, letter.key, letter.data) == ("cycle", "k12", numbers[12])
    assert "no cycle survives it: " in letter.error
    assert bench.letters("rights") == []
    assert bench.ask("SELECT max(events_out) FROM penstock.cycles") == 8
    alone = [event["n"] for event in found if event["r"] is None]
    assert sorted(alone[:8]) == list(range(22, 30)), "the oldest first"
    assert bench.ask("SELECT count(*) FROM penstock.waiting_1") == 0
    assert bench.ask("SELECT suspicion IS NULL FROM penstock.queries")


def test_trouble_that_passes_costs_no_event_also_when_the_query_is_stopping(queues: Bench) -> None:
    bench = queues
    made = Stream.from_("lefts").join(Stream.from_("rights"), on="k", **RULES)
    made = made.map("left.k AS k, right.k AS r").to("pairs")
    push(bench, "lefts", {"k": "a"})
    push(bench, "rights", {"k": "b"})
    real, over_at = Committer.commit, 0.0

    async def commit(self: Committer, work: Any) -> Any:
        nonlocal over_at
        if work.kept is not None and work.kept.alone:
            # Shorter than what there is between the first and the last attempt.
            over_at = over_at or time.monotonic() + 1.4
            if time.monotonic() < over_at:
                raise RuntimeError("for a moment")
        return await real(self, work)

    with mock.patch.object(Committer, "commit", commit), bench.running(made) as query:
        eventually(lambda: query.status.events_in == 2, "both events")
        query.stop(flush=True)

    assert bench.emitted("pairs") == [{"k": "a", "r": None}]
    assert bench.letters("lefts") == []
    assert query.status.failed_cycles > 0


async def fill(conn: AsyncConnection[Any], table: WaitingTable) -> None:
    """Times of each side from 1 on, several of each; of the left every third is in a pair. Time has come to 130."""
    for statement in table.creation():
        await conn.execute(statement)
    await table.prepare(conn)
    await conn.execute(
        "INSERT INTO penstock.queries (name, description, fingerprint, history_seconds, closed_us) "
        "VALUES ('q', '{}', '', 1, 130)"
    )
    await conn.execute(
        "INSERT INTO penstock.waiting_1 (side, key, time_us, partition_id, event_offset, line, is_matched) "
        "SELECT n % 2, 'k' || n % 7, 1 + n / 6, 1, n, '{}', n % 3 = 0 FROM generate_series(0, 899) AS n"
    )


async def test_what_was_sent_on_is_let_go_with_what_is_in_pairs_and_the_rest_stays(database_url: str) -> None:
    table = WaitingTable(1, 10, 20, sends_alone=True)
    async with Database(Settings(database_url=database_url)) as database, database.connection() as conn:
        await fill(conn, table)

        async def left(side: int, alone: bool) -> list[int]:
            asked = "SELECT event_offset FROM penstock.waiting_1 WHERE side = %s AND is_matched <> %s ORDER BY 1"
            return [offset for (offset,) in await (await conn.execute(asked, (side, alone))).fetchall()]

        everybody = await left(0, alone=True)
        sent: list[int] = []
        for part in (0, 1, 7, 100, 1000):
            rows = await (await conn.execute(table.statement("alone"), table.params(limit=part))).fetchall()
            async with conn.transaction():
                await table.apply(conn, Kept(FRESH.empty_table(), [], len(rows)), 130, None)
            sent += [offset for _, offset, _, _, _ in rows]
            assert await left(0, alone=True) == [offset for offset in everybody if offset not in sent]
        assert sorted(sent) == [offset for offset in everybody if 1 + offset // 6 < 130 - 20]
        assert min(await left(0, alone=False)) // 6 + 1 == 130 - 20
        assert min([*await left(1, alone=False), *await left(1, alone=True)]) // 6 + 1 == 130 - 10
        # A flush lets go of all but what is yet to be sent.
        async with conn.transaction():
            await table.apply(conn, None, 130, 1000)
        assert await left(0, alone=True) == [offset for offset in everybody if offset not in sent]
        assert await left(0, alone=False) == await left(1, alone=False) == await left(1, alone=True) == []


@pytest.mark.parametrize("sends_alone", [True, False])
async def test_what_is_not_sent_on_leaves_in_portions_and_is_joined_with_nothing_meanwhile(
    database_url: str, sends_alone: bool
) -> None:
    table = WaitingTable(1, 10, 20, sends_alone)
    # Of the left in pairs, of the left in none, of the right; and from when on they stay.
    kinds = {"side = 0 AND is_matched": 110, "side = 0 AND NOT is_matched": 110, "side = 1": 120}
    everything = {"sides": numbers([0, 1] * 7), "lows": numbers([0] * 14), "highs": numbers([1000] * 14)}
    asked = table.params(keys=[f"k{n // 2}" for n in range(14)], **everything)
    async with Database(Settings(database_url=database_url)) as database, database.connection() as conn:

        async def offsets(kind: str, since: int = 0) -> list[int]:
            rows = f"SELECT event_offset FROM penstock.waiting_1 WHERE {kind} AND time_us >= {since} ORDER BY 1"  # noqa: S608
            return [offset for (offset,) in await (await conn.execute(rows)).fetchall()]

        await fill(conn, table)
        stay = [await offsets(kind, since) for kind, since in kinds.items()]
        if sends_alone:
            stay[1] = await offsets("side = 0 AND NOT is_matched")
        there, cycles = [await offsets(kind) for kind in kinds], 0
        while there != stay:
            with mock.patch.object(join_state, "PORTION", 40):
                async with conn.transaction():
                    await table.apply(conn, Kept(FRESH.empty_table(), [], 0), 130, None)
            expected = [before[min(40, len(before) - len(to)) :] for before, to in zip(there, stay, strict=True)]
            there, cycles = [await offsets(kind) for kind in kinds], cycles + 1
            assert there == expected, "the oldest"
            partners = await (await conn.execute(table.statement("partners"), asked)).fetchall()
            assert min(time for side, _, time, _, _, _ in partners if side == 0) == 110
            assert min(time for side, _, time, _, _, _ in partners if side == 1) == 120
        assert cycles == 9


async def test_a_cycle_lets_more_go_than_it_adds(database_url: str) -> None:
    table = WaitingTable(1, 10, 20, sends_alone=False)
    async with Database(Settings(database_url=database_url)) as database, database.connection() as conn:
        await fill(conn, table)
        columns: list[list[Any]] = [[1] * 50, ["k"] * 50, [500] * 50, [1] * 50, [*range(50)], [None] * 50, ["{}"] * 50]
        fresh = pa.table([*columns, [False] * 50], schema=FRESH)
        with mock.patch.object(join_state, "PORTION", 3):
            async with conn.transaction():
                await table.stage(conn, Kept(fresh, []))
                await table.apply(conn, Kept(fresh, []), 130, None)
        # Of the left, as many in pairs as in none.
        found = await conn.execute("SELECT side, count(*) FROM penstock.waiting_1 GROUP BY side ORDER BY side")
        assert await found.fetchall() == [(0, 450 - 2 * 53), (1, 450 - 53 + 50)]


async def test_the_table_of_a_version_before_gets_its_indexes(database_url: str) -> None:
    table = WaitingTable(1, 10, 20, sends_alone=True)
    async with Database(Settings(database_url=database_url)) as database, database.connection() as conn:
        await conn.execute(table.statement("create"))
        await conn.execute("CREATE INDEX waiting_1_times ON penstock.waiting_1 (side, time_us)")
        for _ in range(2):
            for statement in table.creation():
                await conn.execute(statement)
        found = await conn.execute("SELECT indexname FROM pg_indexes WHERE tablename = 'waiting_1' ORDER BY 1")
        assert [name for (name,) in await found.fetchall()] == ["waiting_1_alone", "waiting_1_pkey", "waiting_1_rest"]


def search(events: int, alone: int, guilty: set[tuple[str, int]]) -> tuple[set[tuple[str, int]], int]:
    """What is given up when every cycle fails that has a guilty one in it, as the planner and the driver go on."""
    read = sent = cycles = 0
    suspects: Suspicion | None = None
    given_up: set[tuple[str, int]] = set()
    while read < events or sent < alone:
        cycles += 1
        assert cycles < 1000
        only_alone = suspects is not None and bool(suspects.alone) and sent < alone
        limit = events if suspects is None or suspects.stops.get(1, 0) <= read else suspects.limit
        stop = read if only_alone else min(events, read + limit)
        is_narrowed = suspects is not None and read < suspects.stops.get(1, 0)
        most = suspects.alone if only_alone and suspects is not None else 0 if is_narrowed and stop > read else alone
        lanes = [Lane(1, 1, 1, "", False, [Stretch(1, read, stop)])] if stop > read else []
        plan = CyclePlan(cycles, True, lanes, [], most)
        going = min(most, alone - sent)
        inside = {("read", n) for n in range(read, stop)} | {("alone", n) for n in range(sent, sent + going)}
        if guilty & inside:
            suspects = poison_search.after_failure(suspects, plan, going)
            if not poison_search.is_guilty(suspects, plan):
                continue
            assert len(inside) == 1
            given_up |= inside
        read, sent = stop, sent + going
        suspects = None if suspects is None else poison_search.after_success(suspects, plan)
    assert suspects is None
    return given_up, cycles


@pytest.mark.parametrize("seed", range(30))
def test_those_that_are_to_blame_are_found_whether_they_are_read_or_have_waited(seed: int) -> None:
    chance = random.Random(seed)
    events, alone = chance.choice([(0, 1), (1, 1), (9, 0), (40, 25), (1, 300), (0, 64)])
    everybody = [("read", n) for n in range(events)] + [("alone", n) for n in range(alone)]
    guilty = set(chance.sample(everybody, min(len(everybody), chance.randrange(1, 4))))
    given_up, cycles = search(events, alone, guilty)
    assert given_up == guilty
    assert cycles < 2 + len(guilty) * 40
