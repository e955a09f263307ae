"""Random events, windows and cycle boundaries: the result is the oracle's, in the history and in the sink alike.

PENSTOCK_TEST_WINDOW_EXAMPLES asks for more examples than the few of a usual run.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests import servers
from tests.engine import oracle
from tests.engine.oracle import Seen, Spans
from tests.engine.pipelines import NEVER_IDLE, T0, Bench, bench, stream
from tests.engine.test_aggregates import ALL, check
from tests.servers import Server

EXAMPLES = int(os.environ.get("PENSTOCK_TEST_WINDOW_EXAMPLES", "6"))
KEYS = ("ada", "bob", "cyd")
#: Their clocks are put forward or back in the hours that the tests look at, the last at midnight.
ZONES = {
    "Europe/Rome": datetime(2023, 10, 29, tzinfo=UTC),
    "America/New_York": datetime(2024, 3, 10, 6, tzinfo=UTC),
    "America/Havana": datetime(2024, 3, 10, 4, tzinfo=UTC),
    "Asia/Kathmandu": datetime(2023, 11, 14, 18, tzinfo=UTC),
}
_names = count()


@dataclass(frozen=True)
class Windows:
    """The windows of a stream: how the builder makes them, and how the oracle does."""

    title: str
    build: Callable[[Any, dict[str, Any]], Any]
    spans: Spans
    #: Around when, and over how many seconds, events are looked at.
    around: int = T0
    over: int = 60

    def __repr__(self) -> str:
        return self.title


def _calendar(every: str, zone: str, over: int) -> Windows:
    return Windows(
        f"each {every} in {zone}",
        lambda made, rules: made.window_calendar(every=every, timezone=zone, **rules),
        oracle.calendar(every, zone),
        int(ZONES[zone].timestamp()),
        over,
    )


KINDS = [
    Windows("5 s", lambda made, rules: made.window_tumbling(seconds=5, **rules), oracle.tumbling(5)),
    Windows("0.7 s", lambda made, rules: made.window_tumbling(seconds=0.7, **rules), oracle.tumbling(0.7), over=9),
    Windows("10 s / 4 s", lambda made, rules: made.window_sliding(size=10, slide=4, **rules), oracle.sliding(10, 4)),
    Windows(
        "5 s and 20 s",
        lambda made, rules: made.window_tumbling(seconds=5, **rules).window_tumbling(seconds=20),
        oracle.several(oracle.tumbling(5), oracle.tumbling(20)),
    ),
    Windows(
        "12 s / 6 s and 5 s",
        lambda made, rules: made.window_sliding(size=12, slide=6, **rules).window_tumbling(seconds=5),
        oracle.several(oracle.sliding(12, 6), oracle.tumbling(5)),
    ),
    _calendar("minute", "Asia/Kathmandu", 600),
    _calendar("hour", "Europe/Rome", 6 * 3600),
    _calendar("hour", "Asia/Kathmandu", 6 * 3600),
    _calendar("day", "Europe/Rome", 72 * 3600),
    _calendar("day", "America/New_York", 72 * 3600),
    _calendar("day", "America/Havana", 72 * 3600),
    _calendar("week", "Europe/Rome", 21 * 86400),
]


@dataclass(frozen=True)
class Story:
    """What is pushed, how it is read, and by which rules."""

    windows: Windows
    partitions: int | None
    by_device: bool
    grace: int
    lateness: int
    #: What is pushed before each run: key, part of the time looked at, amount, kind, device.
    pushes: tuple[tuple[tuple[str | None, float, Decimal | None, str, str], ...], ...]
    #: In how many cycles, about, each push is read.
    cycles: tuple[int, ...]


_events = st.tuples(
    st.sampled_from(KEYS),
    st.floats(0, 1).map(lambda part: round(part, 4)),
    st.one_of(st.none(), st.decimals(-1000, 1000, places=2), st.decimals(-1, 1, places=18)),
    st.sampled_from(["x", "y", "z"]),
    st.sampled_from(["d1", "d2"]),
)


@st.composite
def stories(draw: st.DrawFn) -> Story:
    runs = draw(st.integers(1, 2))
    windows = draw(st.sampled_from(KINDS))
    size = windows.over / 12
    return Story(
        windows,
        draw(st.sampled_from([None, 1, 3])),
        draw(st.booleans()),
        draw(st.sampled_from([0, round(size)])),
        draw(st.sampled_from([0, round(size * 2)])),
        tuple(tuple(draw(st.lists(_events, min_size=4, max_size=30))) for _ in range(runs)),
        tuple(draw(st.lists(st.integers(1, 3), min_size=runs, max_size=runs))),
    )


@pytest.fixture(scope="module")
def shared(pg18: Server, spark: SparkSession) -> Any:
    with pg18.fresh_database(servers.TEMPLATE) as url, bench(url) as made:
        yield made


def _many(windows: Windows, **more: Any) -> Story:
    """A story with events all over the time, many of them out of order."""
    keys, kinds = KEYS * 20, "xyz" * 20
    parts = [(i * 37 % 60) / 60 if i % 4 else i / 60 for i in range(60)]
    events = [(keys[i], parts[i], Decimal(i * 7 % 90) / 4, kinds[i], f"d{i % 3}") for i in range(60)]
    given: dict[str, Any] = {
        "partitions": 3,
        "by_device": False,
        "grace": round(windows.over / 20),
        "lateness": round(windows.over / 3),
        "pushes": (tuple(events[:35]), tuple(events[35:])),
        "cycles": (3, 1),
        **more,
    }
    return Story(windows, **given)


@example(_many(KINDS[0], by_device=True))
@example(_many(KINDS[2], partitions=None))
@example(_many(KINDS[3], lateness=0))
@example(_many(KINDS[4], lateness=0, grace=0))
@example(_many(KINDS[10]))
@given(stories())
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_windows_are_the_oracles_however_the_cycles_fell(shared: Bench, story: Story) -> None:
    _play(shared, story)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@given(stories())
@settings(max_examples=EXAMPLES * 10, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_windows_are_the_oracles_at_length(shared: Bench, story: Story) -> None:
    _play(shared, story)


@pytest.mark.parametrize("windows", KINDS, ids=repr)
@pytest.mark.chaos
def test_every_kind_of_window(shared: Bench, windows: Windows) -> None:
    _play(shared, _many(windows))


def _play(bench: Bench, story: Story) -> None:
    name = f"q{next(_names)}"
    bench.queue(name, "key" if story.partitions is None else "hash", story.partitions)
    rules = {
        "event_time": "at",
        "grace_seconds": story.grace,
        "allowed_lateness_seconds": story.lateness,
        "idle_flush_seconds": NEVER_IDLE,
    }
    made = stream(name, schema={"amount": "decimal(38,18)"}).filter("kind != 'z'")
    if story.by_device:
        made = made.key_by("device")
    made = story.windows.build(made, rules).aggregate(ALL).to(f"{name}.out")
    events: list[Seen] = []
    for turn, (pushed, cycles) in enumerate(zip(story.pushes, story.cycles, strict=True)):
        bench.push([_event(story, event) for event in pushed], name)
        known = {(e.partition, e.offset) for e in events}
        fresh = [e for e in bench.seen(name) if (e.partition, e.offset) not in known]
        events += [_as_met(story, event, _floor(story, events)) for event in fresh]
        bench.run(
            made,
            name,
            max_events_per_cycle=max(1, -(-len(pushed) // cycles)),
            flush=turn == len(story.pushes) - 1,
        )
    expected = oracle.answer(
        events, story.windows.spans, grace=story.grace * 1_000_000, lateness=story.lateness * 1_000_000
    )
    _compare(bench, name, events, expected)


def _event(story: Story, event: Any) -> dict[str, Any]:
    key, part, amount, kind, device = event
    at = story.windows.around * 1000 + round(part * story.windows.over * 1000)
    moment = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
    return {"key": key, "data": {"at": moment, "amount": amount, "kind": kind, "device": device}}


def _as_met(story: Story, event: Seen, floor: int | None) -> Seen:
    return dataclasses.replace(
        event,
        key=event.data["device"] if story.by_device else event.key,
        time=oracle.micros(datetime.fromisoformat(event.data["at"])),
        passes=event.data["kind"] != "z",
        floor=floor,
    )


def _floor(story: Story, before: Sequence[Seen]) -> int | None:
    """Where keys are not the queue's, a partition that joins later finds closed what the others had left behind."""
    if not story.by_device or not before:
        return None
    highest: dict[int, int] = {}
    for event in before:
        highest[event.partition] = max(highest.get(event.partition, 0), event.time or 0)
    return min(highest.values()) - story.lateness * 1_000_000


def _compare(bench: Bench, name: str, events: Sequence[Seen], expected: oracle.Answer) -> None:
    rows = bench.by_window(name)
    assert rows.keys() == expected.windows.keys()
    emitted = {
        (e["key"], *(oracle.micros(datetime.fromisoformat(e[f"window_{edge}"])) for edge in ("start", "end"))): e
        for e in bench.emitted(f"{name}.out")
    }
    assert emitted.keys() == expected.windows.keys()
    assert len(bench.emitted(f"{name}.out")) == len(emitted), "a window was emitted twice"
    for place, inside in expected.windows.items():
        check(rows[place], inside)
        check(emitted[place], inside)
    # Each event is in one place: counted, late or left out by the condition.
    late = Counter((letter.partition_id, letter.offset) for letter in bench.letters(name))
    assert late == Counter((e.partition, e.offset) for e in expected.late)
    assert bench.ledger("events_in", name) == len(events)
    assert bench.ledger("late", name) == bench.ledger("dead", name) == len(expected.late)
    assert bench.ledger("windows", name) == len(expected.windows)
