"""Checks a run from its journals and the database, without using code of the product.

Every acknowledged event is stored and delivered, once, in order and within the limits, and the results equal those of
the oracle.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import psycopg

from chaos.journal import read
from chaos.oracle import Produced, Windows, cents, produced

#: The documented limit of the gate.
CAPACITY, RATE = 12, 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN = 5
#: A window of a key with its count and sum; without queries, an event.
_Line = tuple[tuple[str, int], tuple[int, int]]


@dataclass
class CheckResults:
    """The checks and the problems found."""

    checks: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def check(self, name: str, problems: Iterable[object]) -> None:
        """Record a check, which holds if there are no problems."""
        found = list(problems)
        self.checks[name] = "held" if not found else "BROKEN"
        if found:
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            self.failures.append(f"{name}: {'; '.join(map(str, found[:_SHOWN]))}{more}")


def check_run(directory: Path, url: str, sink_file: Path, *, computed: bool = True) -> CheckResults:
    """Check the run with the journals in a directory. ``computed`` tells whether queries ran."""
    results = CheckResults()
    pushed = produced(sorted(directory.glob("producer-*.journal")))
    results.check("every request was answered in the end", pushed.problems)
    with psycopg.connect(url) as conn:
        _stored(results, conn, pushed, computed)
        if computed:
            _counted(results, conn, pushed.windows)
    _delivered(results, directory, "clicks", "clicks", pushed)
    if computed:
        passed = _delivered(results, directory, "approved", "calls", pushed)
        results.check("the gate's limit was never exceeded", _limit_violations(passed))
        _received(results, directory, pushed.closed(), _window)
        _written(results, sink_file, pushed.closed(), _window)
    else:
        _delivered(results, directory, "calls", "calls", pushed)
        events = {(key, seq): (1, 0) for key, seqs in pushed.events.get("orders", {}).items() for seq in seqs}
        _received(results, directory, events, lambda data, key: ((key, data["seq"]), (1, 0)))
        _written(results, sink_file, events, lambda line: ((line["key"], line["data"]["seq"]), (1, 0)))
    results.facts |= {
        "requests": pushed.requests,
        "requests_sent_again": pushed.repeated,
        "repetitions_that_were_known": pushed.known,
        "events": {queue: pushed.count(queue) for queue in pushed.events},
        "windows": len(pushed.windows),
    }
    return results


# The queues


def _stored(results: CheckResults, conn: psycopg.Connection, pushed: Produced, computed: bool) -> None:
    stored: dict[str, int] = dict(conn.execute("SELECT queue, appended FROM penstock.depth").fetchall())
    wanted = {queue: pushed.count(queue) for queue in ("orders", "clicks", "calls")}
    if computed:
        wanted |= {"approved": pushed.count("calls"), "totals": len(pushed.closed())}
    results.check(
        "queues hold as many events as were acknowledged",
        (
            f"{queue}: {stored.get(queue)} instead of {count}"
            for queue, count in wanted.items()
            if stored.get(queue) != count
        ),
    )
    dead = conn.execute(
        "SELECT q.name, d.group_name, d.error FROM penstock.dead_letters d JOIN penstock.queues q ON q.id = d.queue_id"
    )
    results.check("there are no dead letters", dead.fetchall())
    behind = conn.execute("SELECT queue, group_name, lag FROM penstock.lag WHERE lag > 0")
    results.check("every group has read everything", behind.fetchall())


def _delivered(
    results: CheckResults, directory: Path, queue: str, source: str, pushed: Produced
) -> dict[str, list[int]]:
    """Check the deliveries of a queue; return the append times of its events by key."""
    got, acked = _consumed(directory, queue)
    locations: dict[tuple[str, int], set[tuple[int, int]]] = {}
    times: dict[tuple[str, int], int] = {}
    for _, key, seq, partition, offset, appended in got:
        locations.setdefault((key, seq), set()).add((partition, offset))
        times[key, seq] = _micros(appended)
    wanted = {(key, seq) for key, seqs in pushed.events.get(source, {}).items() for seq in seqs}
    results.check(f"{queue}: nothing acknowledged is lost", sorted(wanted - set(locations)))
    results.check(f"{queue}: nothing comes that was not pushed", sorted(set(locations) - wanted))
    results.check(
        f"{queue}: each event is stored once",
        (f"{event} at {sorted(at)}" for event, at in locations.items() if len(at) > 1),
    )
    results.check(f"{queue}: offsets are in the order of pushes", _out_of_order(locations))
    results.check(f"{queue}: no event is delivered before the one before it", _overtaken(got))
    acks = Counter((key, seq) for _, key, seq in acked)
    twice = [event for event, count in acks.items() if count > 1]
    results.check(f"{queue}: no event is completed twice", twice)
    results.facts[f"{queue}_delivered_again"] = len(got) - len(locations)
    by_key: dict[str, list[int]] = {}
    for (key, _), at in sorted(times.items(), key=lambda item: item[0]):
        by_key.setdefault(key, []).append(at)
    return by_key


def _consumed(directory: Path, queue: str) -> tuple[list[Any], list[Any]]:
    """Return deliveries (time, key, number, partition, offset, append time) and acks (time, key, number), by time."""
    got, acked = [], []
    for path in directory.glob("consumer-*.journal"):
        for line in read(path):
            if line["queue"] == queue:
                got += [(line["t"], *event) for event in line.get("got", [])]
                acked += [(line["t"], *event) for event in line.get("acked", [])]
    # The sort is stable: events of one batch keep the order of the journal.
    return sorted(got, key=lambda each: each[0]), sorted(acked, key=lambda each: each[0])


def _out_of_order(locations: dict[tuple[str, int], set[tuple[int, int]]]) -> Iterable[str]:
    offsets: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for (key, seq), at in locations.items():
        for partition, offset in at:
            offsets.setdefault((key, partition), []).append((offset, seq))
    for (key, partition), some in offsets.items():
        seqs = [seq for _, seq in sorted(some)]
        if seqs != sorted(seqs):
            yield f"{key} in partition {partition}"


def _overtaken(got: list[Any]) -> Iterable[str]:
    reached: dict[str, int] = {}
    for _, key, seq, *_ in got:
        if seq > reached.get(key, -1) + 1:
            yield f"{key}: {seq} came when {reached.get(key, -1)} was the last"
        reached[key] = max(reached.get(key, -1), seq)


def _limit_violations(passed: dict[str, list[int]]) -> Iterable[str]:
    """Check the events of each key against an exact token bucket, by their append times."""
    for key, times in passed.items():
        level, last = Fraction(CAPACITY), None
        for number, at in enumerate(times):
            if last is not None:
                level = min(Fraction(CAPACITY), level + Fraction(RATE * (at - last), 1_000_000))
            level, last = level - 1, at
            if level < 0:
                yield f"{key}: event {number} passed when the bucket was short of {float(-level):.3f}"
                break


# The windows


def _counted(results: CheckResults, conn: psycopg.Connection, wanted: Windows) -> None:
    rows = conn.execute("SELECT key, window_start, events, total FROM penstock_history.totals").fetchall()
    found = {(key, _micros(start)): (events, cents(total)) for key, start, events, total in rows}
    results.check(
        "windows are there once", [] if len(found) == len(rows) else [f"{len(rows)} rows, {len(found)} windows"]
    )
    results.check("aggregates are the oracle's", _differences(found, wanted))
    late = conn.execute("SELECT coalesce(sum(late), 0), coalesce(sum(dead), 0) FROM penstock.query_totals").fetchone()
    results.check("no event was late or given up", [] if late == (0, 0) else [late])


def _received(results: CheckResults, directory: Path, wanted: Windows, read_one: Callable[[Any, str], _Line]) -> None:
    """Check that the webhook got every event at least once, with the same id each time."""
    windows: dict[str, _Line] = {}
    times, problems = 0, []
    for line in read(directory / "receiver.journal"):
        for id, key, data in line["got"]:
            times += 1
            window = read_one(data, key)
            if windows.setdefault(id, window) != window:
                problems.append(f"{id} was {windows[id]} and {window}")
    found = dict(windows.values())
    problems += [] if len(found) == len(windows) else [f"{len(windows) - len(found)} came under two ids"]
    results.check("webhook: an id is one event", problems)
    results.check("webhook: everything came", _differences(found, wanted))
    results.facts["webhook_delivered_again"] = times - len(windows)


def _written(results: CheckResults, file: Path, wanted: Windows, read_one: Callable[[Any], _Line]) -> None:
    """Check that the file has every event exactly once."""
    try:
        lines = file.read_bytes().splitlines()
        windows = [read_one(json.loads(line)) for line in lines]
    except (OSError, ValueError, KeyError) as error:
        results.check("file: it can be read", [error])
        return
    twice = [event for event, count in Counter(event for event, _ in windows).items() if count > 1]
    results.check("file: nothing is there twice", twice)
    results.check("file: everything is there", _differences(dict(windows), wanted))


def _window(data: dict[str, Any], _key: str = "") -> _Line:
    return (data["key"], _micros(data["window_start"])), (data["events"], cents(data["total"]))


def _differences(found: Windows, wanted: Windows) -> Iterable[str]:
    for event in sorted(set(found) | set(wanted)):
        if found.get(event) != wanted.get(event):
            yield f"{event}: {found.get(event)} instead of {wanted.get(event)}"


def _micros(moment: str | datetime) -> int:
    at = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    since = at - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
