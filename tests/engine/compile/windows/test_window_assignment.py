"""Windows over random events and cycles equal those of an oracle, in the history and in the sink.

Set PENSTOCK_TEST_WINDOW_EXAMPLES to run more examples.
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
from tests.engine.compile.windows.test_aggregate_columns import ALL, check
from tests.engine.oracle import OracleEvent, WindowFunction
from tests.engine.pipelines import NEVER_IDLE, T0, Bench, bench, stream
from tests.servers import Server

EXAMPLES = int(os.environ.get("PENSTOCK_TEST_WINDOW_EXAMPLES", "6"))
KEYS = ("ada", "bob", "cyd")
#: Time zones, with a time around which their clocks change; in Havana at midnight.
ZONES = {
    "Europe/Rome": datetime(2023, 10, 29, tzinfo=UTC),
    "America/New_York": datetime(2024, 3, 10, 6, tzinfo=UTC),
    "America/Havana": datetime(2024, 3, 10, 4, tzinfo=UTC),
    "Asia/Kathmandu": datetime(2023, 11, 14, 18, tzinfo=UTC),
}
_names = count()


@dataclass(frozen=True)
class Windows:
    """A kind of windows, for the stream and for the oracle."""

    title: str
    build: Callable[[Any, dict[str, Any]], Any]
    spans: WindowFunction
    #: The start and the duration of the event times.
    around: int = T0
    over: int = 60

    def __repr__(self) -> str:
        return self.title


def _calendar(every: str, zone: str, over: int, **anchor: int) -> Windows:
    return Windows(
        f"each {every} in {zone} {anchor or ''}",
        lambda made, rules: made.window_calendar(every=every, timezone=zone, **anchor, **rules),
        oracle.calendar(every, zone, **anchor),
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
        oracle.combine(oracle.tumbling(5), oracle.tumbling(20)),
    ),
    Windows(
        "12 s / 6 s and 5 s",
        lambda made, rules: made.window_sliding(size=12, slide=6, **rules).window_tumbling(seconds=5),
        oracle.combine(oracle.sliding(12, 6), oracle.tumbling(5)),
    ),
    _calendar("minute", "Asia/Kathmandu", 600),
    _calendar("hour", "Europe/Rome", 6 * 3600),
    _calendar("hour", "Asia/Kathmandu", 6 * 3600),
    _calendar("day", "Europe/Rome", 72 * 3600),
    _calendar("day", "America/New_York", 72 * 3600),
    _calendar("day", "America/Havana", 72 * 3600),
    _calendar("week", "Europe/Rome", 21 * 86400),
    _calendar("month", "Europe/Rome", 150 * 86400),
    _calendar("month", "America/Havana", 150 * 86400, anchor_day=31),
    _calendar("quarter", "America/New_York", 400 * 86400, anchor_day=10, anchor_month=3),
    _calendar("year", "Asia/Kathmandu", 1000 * 86400, anchor_day=29, anchor_month=2),
]


@dataclass(frozen=True)
class Scenario:
    """The events that are pushed, the cycles that read them, and the time rules."""

    windows: Windows
    partitions: int | None
    by_device: bool
    grace: int
    lateness: int
    #: The events before each run: key, time as a fraction of the duration, amount, kind, device.
    pushes: tuple[tuple[tuple[str | None, float, Decimal | None, str, str], ...], ...]
    #: The approximate number of cycles that read each push.
    cycles: tuple[int, ...]


_events = st.tuples(
    st.sampled_from(KEYS),
    st.floats(0, 1).map(lambda part: round(part, 4)),
    st.one_of(st.none(), st.decimals(-1000, 1000, places=2), st.decimals(-1, 1, places=18)),
    st.sampled_from(["x", "y", "z"]),
    st.sampled_from(["d1", "d2"]),
)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    runs = draw(st.integers(1, 2))
    windows = draw(st.sampled_from(KINDS))
    size = windows.over / 12
    return Scenario(
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


def _many(windows: Windows, **more: Any) -> Scenario:
    """A scenario with many events, some out of order."""
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
    return Scenario(windows, **given)


@example(_many(KINDS[0], by_device=True))
@example(_many(KINDS[2], partitions=None))
@example(_many(KINDS[3], lateness=0))
@example(_many(KINDS[4], lateness=0, grace=0))
@example(_many(KINDS[10]))
@example(_many(KINDS[-3]))
@given(scenarios())
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_windows_equal_the_oracle(shared: Bench, scenario: Scenario) -> None:
    _run_scenario(shared, scenario)


@pytest.mark.long
@pytest.mark.timeout(3600)
@given(scenarios())
@settings(max_examples=EXAMPLES * 10, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_windows_equal_the_oracle_in_many_examples(shared: Bench, scenario: Scenario) -> None:
    _run_scenario(shared, scenario)


@pytest.mark.parametrize("windows", KINDS, ids=repr)
@pytest.mark.long
def test_every_kind_of_window(shared: Bench, windows: Windows) -> None:
    _run_scenario(shared, _many(windows))


def _run_scenario(bench: Bench, scenario: Scenario) -> None:
    name = f"q{next(_names)}"
    bench.queue(name, "key" if scenario.partitions is None else "hash", scenario.partitions)
    rules = {
        "event_time": "at",
        "grace_seconds": scenario.grace,
        "allowed_lateness_seconds": scenario.lateness,
        "idle_flush_seconds": NEVER_IDLE,
    }
    made = stream(name, schema={"amount": "decimal(38,18)"}).filter("kind != 'z'")
    if scenario.by_device:
        made = made.key_by("device")
    made = scenario.windows.build(made, rules).aggregate(ALL).to(f"{name}.out")
    events: list[OracleEvent] = []
    for turn, (pushed, cycles) in enumerate(zip(scenario.pushes, scenario.cycles, strict=True)):
        bench.push([_event(scenario, event) for event in pushed], name)
        known = {(e.partition, e.offset) for e in events}
        fresh = [e for e in bench.seen(name) if (e.partition, e.offset) not in known]
        events += [_as_met(scenario, event, _floor(scenario, events)) for event in fresh]
        bench.run(
            made,
            name,
            max_events_per_cycle=max(1, -(-len(pushed) // cycles)),
            flush=turn == len(scenario.pushes) - 1,
        )
    expected = oracle.compute_windows(
        events, scenario.windows.spans, grace=scenario.grace * 1_000_000, lateness=scenario.lateness * 1_000_000
    )
    _compare(bench, name, events, expected)


def _event(scenario: Scenario, event: Any) -> dict[str, Any]:
    key, part, amount, kind, device = event
    at = scenario.windows.around * 1000 + round(part * scenario.windows.over * 1000)
    moment = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
    return {"key": key, "data": {"at": moment, "amount": amount, "kind": kind, "device": device}}


def _as_met(scenario: Scenario, event: OracleEvent, floor: int | None) -> OracleEvent:
    return dataclasses.replace(
        event,
        key=event.data["device"] if scenario.by_device else event.key,
        time=oracle.micros(datetime.fromisoformat(event.data["at"])),
        passes=event.data["kind"] != "z",
        floor=floor,
    )


def _floor(scenario: Scenario, before: Sequence[OracleEvent]) -> int | None:
    """With a global watermark, a partition whose first event comes later finds windows closed by the others."""
    if not scenario.by_device or not before:
        return None
    highest: dict[int, int] = {}
    for event in before:
        highest[event.partition] = max(highest.get(event.partition, 0), event.time or 0)
    return min(highest.values()) - scenario.lateness * 1_000_000


def _compare(bench: Bench, name: str, events: Sequence[OracleEvent], expected: oracle.OracleResult) -> None:
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
    # Each event is either counted, late or filtered out.
    late = Counter((letter.partition_id, letter.offset) for letter in bench.letters(name))
    assert late == Counter((e.partition, e.offset) for e in expected.late)
    assert bench.ledger("events_in", name) == len(events)
    assert bench.ledger("late", name) == bench.ledger("dead", name) == len(expected.late)
    assert bench.ledger("windows", name) == len(expected.windows)
