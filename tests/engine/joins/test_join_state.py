"""The state of a stream-stream join: validation of stored events, expiry in batches, poison events."""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from psycopg import AsyncConnection

from penstock import Stream
from penstock.core.errors import LeaseLost
from penstock.core.settings import Settings
from penstock.db.pg_arrays import int_array
from penstock.db.pool import Database
from penstock.engine.cycle.commit import Committer
from penstock.engine.joins.join_state import JOIN_ROW_SCHEMA, JoinState, JoinStateChanges
from tests.conditions import eventually
from tests.engine.pipelines import NEVER_IDLE, T0, Bench

RULES: dict[str, Any] = {"event_time": "ts", "idle_flush_seconds": NEVER_IDLE, "within": 60, "how": "left"}


def push(bench: Bench, queue: str, *events: dict[str, Any]) -> None:
    bench.push([(event["k"], {"ts": T0, **event}) for event in events], queue)


@pytest.fixture
def queues(bench: Bench) -> Bench:
    for queue in ("lefts", "rights", "pairs"):
        bench.queue(queue, partitions=1)
    return bench


def test_invalid_events_become_dead_letters_and_do_not_affect_others(queues: Bench) -> None:
    def measured(event: dict[str, Any]) -> dict[str, Any]:
        return {**event, "size": "large" if event["n"] > 9 else event["n"] * 2}

    bench = queues
    # The reader validates the left input, the stage of a user-defined function the right one.
    right = Stream.from_("rights").filter("n > 0").map(measured, name="measured")
    pairs = Stream.from_("lefts", schema={"at": "timestamp"}).join(right, on="k", **RULES)
    pairs = pairs.map(
        "left.k AS k, left.total + coalesce(right.size, 0) AS total, CAST(left.at AS string) AS at, "
        "CAST(left.code AS int) AS code, right IS NULL AS is_unmatched"
    )
    stream = pairs.to("pairs")
    anything: dict[str, Any] = {"and": "no step uses it"}
    push(
        bench,
        "lefts",
        {"k": "a", "total": 1.5, "at": "2026-01-31T12:00:00Z", "code": "1"},
        {"k": "b", "total": 1.5, "note": "of another type"},
        {"k": "c", "total": "n/a"},
        {"k": "d", "total": 1.5, "at": "n/a"},
        {"k": "e", "total": 2.5},
        {"k": "f", "total": 1.5, "code": "many"},
        {"k": "g", "total": 1.5, "code": "7", "note": anything},
    )
    push(bench, "rights", {"k": "a", "n": 1, "note": anything}, {"k": "b", "n": 10}, {"k": "c", "n": 1, "note": 5})
    query = bench.run(stream, flush=False)
    letters = [(letter.data["k"], letter.stage) for queue in ("lefts", "rights") for letter in bench.letters(queue)]
    assert letters == [("c", "parse"), ("d", "parse"), ("b", "measured")]
    assert query.status.failed_cycles == 0
    # A row may have been stored before a step used the field.
    invalid = """replace(line, '2.5', '"n/a"')"""
    assert bench.ask(f"UPDATE penstock.waiting_1 SET line = {invalid} WHERE line <> {invalid} RETURNING 1") == 1  # noqa: S608
    bench.run(stream)

    names = ("k", "total", "at", "code", "is_unmatched")
    assert sorted(tuple(event[name] for name in names) for event in bench.emitted("pairs")) == [
        ("a", 3.5, "2026-01-31 12:00:00", 1, False),
        ("b", 1.5, None, None, True),
        ("e", None, None, None, True),
        ("g", 1.5, None, 7, True),
    ]
    # The poison event is found in the state.
    (letter,) = [letter for letter in bench.letters("lefts") if letter.stage == "cycle"]
    assert (letter.key, letter.data["code"], letter.attempts) == ("f", "many", 1)
    assert "every cycle with this event fails: " in letter.error
    assert len(bench.letters("rights")) == 1
    assert bench.ask("SELECT poison_search IS NULL FROM penstock.queries")


@pytest.mark.long
def test_expired_rows_are_emitted_once_in_batches_despite_lost_drivers_and_a_poison_event(
    queues: Bench,
) -> None:
    """The driver is lost after it has computed a batch, and after it has committed one."""
    bench = queues
    pairs = Stream.from_("lefts").join(Stream.from_("rights"), on="k", **RULES)
    stream = pairs.map("left.k AS k, CAST(left.n AS int) AS n, right.k AS r").to("pairs")
    numbers = [{"k": f"k{i}", "ts": T0 + 30 - i, "n": "many" if i == 12 else str(i)} for i in range(30)]
    push(bench, "lefts", *numbers)
    push(bench, "rights", {"k": "k7"})
    real, batches = Committer.commit, 0

    async def commit(self: Committer, work: Any) -> Any:
        nonlocal batches
        batches += work.join_changes is not None and work.join_changes.expired_rows > 1
        if batches == 1:
            batches += 1
            raise LeaseLost("lost before the commit")
        outcome = await real(self, work)
        if batches == 3:
            batches += 1
            raise LeaseLost("lost after the commit")
        return outcome

    with mock.patch.object(Committer, "commit", commit):
        bench.run(stream, max_events_per_cycle=8)

    assert batches > 4
    emitted = bench.emitted("pairs")
    assert sorted((event["n"], event["r"]) for event in emitted) == [
        (i, "k7" if i == 7 else None) for i in range(30) if i != 12
    ]
    (letter,) = bench.letters("lefts")
    assert (letter.stage, letter.key, letter.data) == ("cycle", "k12", numbers[12])
    assert "every cycle with this event fails: " in letter.error
    assert bench.letters("rights") == []
    assert bench.ask("SELECT max(events_out) FROM penstock.cycles") == 8
    unmatched = [event["n"] for event in emitted if event["r"] is None]
    assert sorted(unmatched[:8]) == list(range(22, 30)), "the oldest first"
    assert bench.ask("SELECT count(*) FROM penstock.waiting_1") == 0
    assert bench.ask("SELECT poison_search IS NULL FROM penstock.queries")


def test_a_temporary_failure_during_a_stop_loses_no_event(queues: Bench) -> None:
    bench = queues
    pairs = Stream.from_("lefts").join(Stream.from_("rights"), on="k", **RULES)
    stream = pairs.map("left.k AS k, right.k AS r").to("pairs")
    push(bench, "lefts", {"k": "a"})
    push(bench, "rights", {"k": "b"})
    real, over_at = Committer.commit, 0.0

    async def commit(self: Committer, work: Any) -> Any:
        nonlocal over_at
        if work.join_changes is not None and work.join_changes.expired_rows:
            # Shorter than the time between the first and the last attempt.
            over_at = over_at or time.monotonic() + 1.4
            if time.monotonic() < over_at:
                raise RuntimeError("temporary")
        return await real(self, work)

    with mock.patch.object(Committer, "commit", commit), bench.running(stream) as query:
        eventually(lambda: query.status.events_in == 2, "both events")
        query.stop(flush=True)

    assert bench.emitted("pairs") == [{"k": "a", "r": None}]
    assert bench.letters("lefts") == []
    assert query.status.failed_cycles > 0


async def fill(conn: AsyncConnection[Any], state: JoinState) -> None:
    """Create the table with 900 rows at times 1 to 150. A third of the rows is matched. The watermark is 130."""
    for statement in state.create_statements():
        await conn.execute(statement)
    await state.prepare(conn)
    await conn.execute(
        "INSERT INTO penstock.queries (name, description, fingerprint, history_seconds, closed_us) "
        "VALUES ('q', '{}', '', 1, 130)"
    )
    await conn.execute(
        "INSERT INTO penstock.waiting_1 (side, key, time_us, partition_id, event_offset, line, is_matched) "
        "SELECT n % 2, 'k' || n % 7, 1 + n / 6, 1, n, '{}', n % 3 = 0 FROM generate_series(0, 899) AS n"
    )


async def test_emitted_and_matched_rows_are_deleted_and_others_stay(database_url: str) -> None:
    state = JoinState(1, 10, 20, is_outer=True)
    async with Database(Settings(database_url=database_url)) as database, database.connection() as conn:
        await fill(conn, state)

        async def offsets(side: int, *, is_matched: bool) -> list[int]:
            query = "SELECT event_offset FROM penstock.waiting_1 WHERE side = %s AND is_matched = %s ORDER BY 1"
            return [offset for (offset,) in await (await conn.execute(query, (side, is_matched))).fetchall()]

        unmatched = await offsets(0, is_matched=False)
        emitted: list[int] = []
        for limit in (0, 1, 7, 100, 1000):
            rows = await (await conn.execute(state.statement("expired_rows"), state.params(limit=limit))).fetchall()
            async with conn.transaction():
                await state.apply(conn, JoinStateChanges(JOIN_ROW_SCHEMA.empty_table(), [], len(rows)), 130, None)
            emitted += [offset for _, offset, _, _, _ in rows]
            assert await offsets(0, is_matched=False) == [offset for offset in unmatched if offset not in emitted]
        assert sorted(emitted) == [offset for offset in unmatched if 1 + offset // 6 < 130 - 20]
        assert min(await offsets(0, is_matched=True)) // 6 + 1 == 130 - 20
        right = [*await offsets(1, is_matched=True), *await offsets(1, is_matched=False)]
        assert min(right) // 6 + 1 == 130 - 10
        # A flush deletes all rows except unmatched left rows that are not emitted yet.
        async with conn.transaction():
            await state.apply(conn, None, 130, 1000)
        assert await offsets(0, is_matched=False) == [offset for offset in unmatched if offset not in emitted]
        assert await offsets(0, is_matched=True) == []
        assert await offsets(1, is_matched=True) == await offsets(1, is_matched=False) == []


@pytest.mark.parametrize("is_outer", [True, False])
async def test_expired_rows_are_deleted_in_batches_and_match_nothing_meanwhile(
    database_url: str, is_outer: bool
) -> None:
    state = JoinState(1, 10, 20, is_outer, expiry_batch=40)
    # The kinds of rows, and the time from which on they stay.
    kinds = {"side = 0 AND is_matched": 110, "side = 0 AND NOT is_matched": 110, "side = 1": 120}
    all_times = {"sides": int_array([0, 1] * 7), "lows": int_array([0] * 14), "highs": int_array([1000] * 14)}
    params = state.params(keys=[f"k{n // 2}" for n in range(14)], **all_times)
    async with Database(Settings(database_url=database_url)) as database, database.connection() as conn:

        async def offsets(kind: str, since: int = 0) -> list[int]:
            rows = f"SELECT event_offset FROM penstock.waiting_1 WHERE {kind} AND time_us >= {since} ORDER BY 1"  # noqa: S608
            return [offset for (offset,) in await (await conn.execute(rows)).fetchall()]

        await fill(conn, state)
        remaining = [await offsets(kind, since) for kind, since in kinds.items()]
        if is_outer:
            remaining[1] = await offsets("side = 0 AND NOT is_matched")
        stored, cycles = [await offsets(kind) for kind in kinds], 0
        while stored != remaining:
            async with conn.transaction():
                await state.apply(conn, JoinStateChanges(JOIN_ROW_SCHEMA.empty_table(), [], 0), 130, None)
            expected = [before[min(40, len(before) - len(to)) :] for before, to in zip(stored, remaining, strict=True)]
            stored, cycles = [await offsets(kind) for kind in kinds], cycles + 1
            assert stored == expected, "the oldest are deleted"
            partners = await (await conn.execute(state.statement("find_partners"), params)).fetchall()
            assert min(time for side, _, time, _, _, _ in partners if side == 0) == 110
            assert min(time for side, _, time, _, _, _ in partners if side == 1) == 120
        assert cycles == 9


async def test_a_cycle_deletes_more_expired_rows_than_it_adds(database_url: str) -> None:
    state = JoinState(1, 10, 20, is_outer=False, expiry_batch=3)
    async with Database(Settings(database_url=database_url)) as database, database.connection() as conn:
        await fill(conn, state)
        columns: list[list[Any]] = [[1] * 50, ["k"] * 50, [500] * 50, [1] * 50, [*range(50)], [None] * 50, ["{}"] * 50]
        changes = JoinStateChanges(pa.table([*columns, [False] * 50], schema=JOIN_ROW_SCHEMA), [])
        async with conn.transaction():
            await state.stage(conn, changes)
            await state.apply(conn, changes, 130, None)
        # 53 matched and 53 unmatched left rows, 53 right rows.
        counts = await conn.execute("SELECT side, count(*) FROM penstock.waiting_1 GROUP BY side ORDER BY side")
        assert await counts.fetchall() == [(0, 450 - 2 * 53), (1, 450 - 53 + 50)]
