"""Events from the clocks of broken producers: each counts in windows that can be read, or is a dead letter."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from penstock import agg
from tests.engine.pipelines import NEVER_IDLE, Bench, stream

IN_RANGE = [
    "2023-11-14T22:00:00Z",
    "0003-01-01T00:00:00Z",
    "0003-01-01T00:00:00.000001+00:00",
    "1582-10-10T00:00:00Z",
    "9997-12-31T23:59:59.999999Z",
]
OUTSIDE = [
    "0001-01-01T00:00:00Z",
    "0002-12-31T23:59:59.999999Z",
    "9998-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z",
]
NO_TIMES = [
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "NaN",
    "infinity",
    "",
    None,
    "1900-02-29T00:00:00Z",
]
RULES: dict[str, Any] = {"event_time": "ts", "idle_flush_seconds": NEVER_IDLE, "late": "include"}
WINDOWS: dict[str, Callable[[Any], Any]] = {
    "week": lambda made: made.window_tumbling(seconds=7 * 86_400, **RULES),
    "sliding": lambda made: made.window_sliding(size=60, slide=20, **RULES),
    "session": lambda made: made.window_session(gap=30 * 86_400, **RULES),
    "day": lambda made: made.window_calendar(every="day", timezone="America/New_York", **RULES),
    "year": lambda made: made.window_calendar(every="year", timezone="Pacific/Kiritimati", **RULES),
}


@pytest.mark.parametrize("window", WINDOWS)
def test_windows_at_the_ends_of_time_close_and_can_be_read(bench: Bench, window: str) -> None:
    times = [*IN_RANGE, *OUTSIDE, *NO_TIMES]
    bench.queue(partitions=1)
    bench.push([(f"k{n}", {"ts": time}) for n, time in enumerate(times)])
    query = bench.run(WINDOWS[window](stream()).aggregate({"n": agg.count()}).to("totals"))

    assert query.status.failed_cycles == 0
    assert [letter.data["ts"] for letter in bench.letters()] == [*OUTSIDE, *NO_TIMES]
    expected = {f"k{n}" for n in range(len(IN_RANGE))}
    assert {row["key"] for row in bench.rows()} == {event["key"] for event in bench.emitted()} == expected
    assert {row["key"] for row in bench.penstock.history("q")} == expected
    assert bench.ask("SELECT count(*) FROM penstock.state_1") == 0


@pytest.mark.parametrize("with_function", [False, True])
def test_times_that_producers_give_are_checked(bench: Bench, with_function: bool) -> None:
    times = [*IN_RANGE, *OUTSIDE]
    bench.queue(partitions=1)
    bench.push({"data": {"ts": time}, "time": datetime.fromisoformat(time)} for time in times)
    made = stream().filter(lambda event: True) if with_function else stream()
    windows = made.window_tumbling(seconds=60, **{**RULES, "event_time": True})
    query = bench.run(windows.aggregate({"n": agg.count()}).to("totals"))

    assert query.status.failed_cycles == 0
    assert [(letter.data["ts"], letter.stage) for letter in bench.letters()] == [(t, "event time") for t in OUTSIDE]
    assert all("is outside the years 3 to 9997" in letter.error for letter in bench.letters())
    assert sum(row["n"] for row in bench.rows()) == len(IN_RANGE)
