"""Stored events of a stream-stream join: validation, expiry in batches, poison events."""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

import psycopg
import pyarrow as pa
import pytest

from penstock import Stream
from penstock.core.errors import LeaseLost
from penstock.engine.cycle.commit import Committer
from penstock.engine.state.runs import RunPiece, decode_hashes, decode_rows, encode_piece
from tests.conditions import eventually
from tests.engine.pipelines import NEVER_IDLE, T0, Bench

RULES: dict[str, Any] = {"event_time": "ts", "idle_flush_seconds": NEVER_IDLE, "within": 60, "how": "left"}


def push(bench: Bench, queue: str, *events: dict[str, Any]) -> None:
    bench.push([(event["k"], {"ts": T0, **event}) for event in events], queue)


def replace_in_lines(bench: Bench, old: str, new: str) -> int:
    """Replace text in the stored left rows. Returns the number of changed rows."""
    changed = 0
    with psycopg.connect(bench.url, autocommit=True) as conn:
        question = "SELECT sequence, rows, data FROM penstock.state_runs WHERE part = 0"
        for sequence, count, data in conn.execute(question, binary=True).fetchall():
            rows = decode_rows(data[8 * count :])
            lines = rows.column("__line").to_pylist()
            replaced = pa.chunked_array([[line.replace(old, new) for line in lines]], pa.large_string())
            changed += sum(old in line for line in lines)
            rows = rows.set_column(rows.column_names.index("__line"), "__line", replaced)
            piece = encode_piece(RunPiece(decode_hashes(data, count), rows))
            # Workers have cached the run under its id.
            statement = "UPDATE penstock.state_runs SET data = %s, run_id = run_id || '*' WHERE sequence = %s"
            conn.execute(statement, (piece, sequence))
    return changed


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
    assert replace_in_lines(bench, "2.5", '"n/a"') == 1
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
        batches += work.plan.expired_rows > 1
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
    assert bench.ask("SELECT count(*) FROM penstock.state_runs") == 0
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
        if work.plan.expired_rows:
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
