"""The checker detects violations: each check has a test that violates it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

import chaos
from chaos.checker import CheckResults, check_run
from chaos.journal import Journal
from penstock import SyncPenstock

_BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
_FIRST_US = int(_BEGINNING.timestamp()) * 1_000_000

#: Two windows of one key, of which the second is open, and three calls.
ORDERS = [["o", 0, _FIRST_US, 150], ["o", 1, _FIRST_US + 1, 250], ["o", 2, _FIRST_US + 6_000_000, 100]]
CLICKS = [["c", seq, 0, 0] for seq in range(3)]
CALLS = [["k", seq, 0, 0] for seq in range(3)]
CLOSED = {"key": "o", "window_start": _BEGINNING.isoformat(), "events": 2, "total": 4.0}


class World:
    """A small run in which everything went well, on a database with as much in it; ``computed``, if by Spark."""

    def __init__(self, directory: Path, url: str, *, computed: bool = True) -> None:
        self.directory, self.url, self.computed = directory, url, computed
        self.file = directory / "totals.jsonl"
        self.producer: list[Any] = []
        for number, (queue, events) in enumerate((("orders", ORDERS), ("clicks", CLICKS), ("calls", CALLS))):
            self.producer.append({"n": number, "queue": queue, "events": events})
            self.producer.append({"n": number, "answer": [len(events), 0, False], "tries": 1})
        self.consumer: list[Any] = []
        for queue, key, place in (("clicks", "c", 1), ("approved" if computed else "calls", "k", 2)):
            for seq in range(3):
                at = (_BEGINNING + timedelta(seconds=seq)).isoformat()
                self.consumer.append({"t": seq, "queue": queue, "got": [[key, seq, place, seq, at]]})
                self.consumer.append({"t": seq + 0.5, "queue": queue, "acked": [[key, seq]]})
        seqs = [{"seq": seq} for _, seq, *_ in ORDERS]
        sent = [CLOSED] if computed else seqs
        self.receiver: list[Any] = [{"t": 1, "got": [[f"1-{n}", "o", data]]} for n, data in enumerate(sent)]
        self.written: list[Any] = [CLOSED] if computed else [{"key": "o", "data": data} for data in seqs]
        self.late = 0
        self.counted = [("o", _BEGINNING, 2, "4.00"), ("o", _BEGINNING + timedelta(seconds=5), 1, "1.00")]

    def make(self) -> None:
        with SyncPenstock(self.url) as client:
            made = (("approved", 3), ("totals", 1)) if self.computed else ()
            for queue, events in (("orders", 3), ("clicks", 3), ("calls", 3), *made):
                client.queue(queue).create("key")
                client.queue(queue).push([{"data": number} for number in range(events)])

    def check_run(self) -> CheckResults:
        for name in ("producer", "consumer", "receiver"):
            journal = Journal(self.directory / (f"{name}-a.journal" if name != "receiver" else "receiver.journal"))
            for line in getattr(self, name):
                journal.write(line)
        self.file.write_text("".join(json.dumps(line) + "\n" for line in self.written))
        if self.computed:
            self._compute()
        return check_run(self.directory, self.url, self.file, computed=self.computed)

    def _compute(self) -> None:
        with psycopg.connect(self.url) as conn:
            conn.execute("CREATE TABLE counted (key text, window_start timestamptz, events int, total numeric)")
            conn.cursor().executemany("INSERT INTO counted VALUES (%s, %s, %s, %s)", self.counted)
            conn.execute("CREATE VIEW penstock_history.totals AS SELECT * FROM counted")
            conn.execute(
                "INSERT INTO penstock.queries (name, description, fingerprint, history_seconds)"
                " VALUES ('totals', '{}', '', 1)"
            )
            conn.execute(
                "INSERT INTO penstock.query_totals (query_id, late, dead) SELECT id, %s, 0 FROM penstock.queries",
                (self.late,),
            )


@pytest.fixture
def world(tmp_path: Path, database_url: str) -> World:
    made = World(tmp_path, database_url)
    made.make()
    return made


@pytest.fixture
def world_without_spark(tmp_path: Path, database_url: str) -> World:
    made = World(tmp_path, database_url, computed=False)
    made.make()
    return made


def test_a_correct_run_passes_all_checks(world: World) -> None:
    results = world.check_run()
    assert results.failures == []
    assert set(results.checks.values()) == {"held"}
    # Each check needs a test in which it fails.
    broken = {_for_any_queue(check) for _, check in BREAKS} | DEAD_AND_UNREAD
    assert {_for_any_queue(check) for check in results.checks} <= broken


def test_a_correct_run_without_spark_passes_all_checks(world_without_spark: World) -> None:
    results = world_without_spark.check_run()
    assert results.failures == []
    assert {"calls: nothing acknowledged is lost", "webhook: everything came"} <= set(results.checks)


def _for_any_queue(check: str) -> str:
    return re.sub("^(clicks|approved): ", "", check)


def _drop_delivery(world: World) -> None:
    world.consumer = [line for line in world.consumer if line.get("got", [[0, 0]])[0][:2] != ["c", 1]]


def _deliver_at_two_places(world: World) -> None:
    world.consumer.append({"t": 9, "queue": "clicks", "got": [["c", 1, 1, 7, _BEGINNING.isoformat()]]})


def _pass_too_soon(world: World) -> None:
    world.producer[4]["events"] = [["k", seq, 0, 0] for seq in range(14)]
    at = _BEGINNING.isoformat()
    world.consumer = [{"t": seq, "queue": "approved", "got": [["k", seq, 2, seq, at]]} for seq in range(14)]


def _complete_twice(world: World) -> None:
    world.consumer.append({"t": 9, "queue": "clicks", "acked": [["c", 1]]})


def _overtake(world: World) -> None:
    first, second = (
        next(i for i, e in enumerate(world.consumer) if e.get("got", [[0, 0]])[0][:2] == ["c", n]) for n in (0, 1)
    )
    world.consumer[first]["t"], world.consumer[second]["t"] = 1, 0


def _change_order(world: World) -> None:
    for line in world.consumer:
        for event in line.get("got", []):
            if event[0] == "c":
                event[3] = 2 - event[3]


def _count_twice(world: World) -> None:
    world.counted[0] = ("o", _BEGINNING, 3, "4.00")


def _close_twice(world: World) -> None:
    world.counted.append(world.counted[0])


def _write_twice(world: World) -> None:
    world.written.append(CLOSED)


def _write_nothing(world: World) -> None:
    world.written = []


def _lose_a_window(world: World) -> None:
    world.receiver = []


def _send_under_two_ids(world: World) -> None:
    world.receiver.append({"t": 2, "got": [["1-1", "o", CLOSED]]})


def _leave_unanswered(world: World) -> None:
    world.producer.pop()


def _store_less(world: World) -> None:
    world.producer[2]["events"] = [["c", seq, 0, 0] for seq in range(4)]


def _deliver_what_nobody_pushed(world: World) -> None:
    world.consumer.append({"t": 9, "queue": "clicks", "got": [["c", 3, 1, 3, _BEGINNING.isoformat()]]})


def _be_late(world: World) -> None:
    world.late = 1


def _write_what_is_no_window(world: World) -> None:
    world.written.append({"seq": 7})


BREAKS = [
    (_drop_delivery, "clicks: nothing acknowledged is lost"),
    (_deliver_what_nobody_pushed, "clicks: nothing comes that was not pushed"),
    (_deliver_at_two_places, "clicks: each event is stored once"),
    (_pass_too_soon, "the gate's limit was never exceeded"),
    (_complete_twice, "clicks: no event is completed twice"),
    (_overtake, "clicks: no event is delivered before the one before it"),
    (_change_order, "clicks: offsets are in the order of pushes"),
    (_count_twice, "aggregates are the oracle's"),
    (_close_twice, "windows are there once"),
    (_write_twice, "file: nothing is there twice"),
    (_write_nothing, "file: everything is there"),
    (_lose_a_window, "webhook: everything came"),
    (_send_under_two_ids, "webhook: an id is one event"),
    (_leave_unanswered, "every request was answered in the end"),
    (_store_less, "queues hold as many events as were acknowledged"),
    (_be_late, "no event was late or given up"),
    (_write_what_is_no_window, "file: it can be read"),
]
DEAD_AND_UNREAD = {"there are no dead letters", "every group has read everything"}


@pytest.mark.parametrize(("breaks", "check"), BREAKS)
def test_the_checker_detects_a_violation(world: World, breaks: Callable[[World], None], check: str) -> None:
    breaks(world)
    results = world.check_run()
    assert results.checks[check] == "BROKEN", results
    assert any(failure.startswith(check) for failure in results.failures)


@pytest.mark.parametrize(
    ("breaks", "check"),
    [
        (_drop_delivery, "clicks: nothing acknowledged is lost"),
        (_store_less, "queues hold as many events as were acknowledged"),
        (_write_nothing, "file: everything is there"),
        (_write_what_is_no_window, "file: it can be read"),
        (_lose_a_window, "webhook: everything came"),
    ],
)
def test_the_checker_detects_a_violation_without_spark(
    world_without_spark: World, breaks: Callable[[World], None], check: str
) -> None:
    breaks(world_without_spark)
    assert world_without_spark.check_run().checks[check] == "BROKEN"


def test_dead_letters_and_unread_events_are_found(world: World) -> None:
    with SyncPenstock(world.url) as client:
        client.ack(client.queue("clicks").group("readers").pop(), "dead_letter")
    results = world.check_run()
    assert {check for check, result in results.checks.items() if result == "BROKEN"} == DEAD_AND_UNREAD


@pytest.mark.parametrize("module", ["checker", "oracle", "journal", "producer", "consumer", "receiver", "http_client"])
def test_checker_and_load_share_no_code_with_the_product(module: str) -> None:
    tree = ast.parse((Path(chaos.__file__).parent / f"{module}.py").read_text())
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            assert name.partition(".")[0] != "penstock"
            if name.startswith("chaos"):
                assert name in ("chaos.journal", "chaos.oracle", "chaos.http_client"), name
