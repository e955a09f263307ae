"""Windows: what is refused, and what they are in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidOption
from penstock.stream import windows
from penstock.stream.windows import CalendarWindow, SessionWindow, SlidingWindow, TumblingWindow

YEAR = 366 * 86_400


@pytest.mark.parametrize(
    ("window", "words"),
    [
        (windows.tumbling_window(5), "tumbling 5 s"),
        (windows.tumbling_window(0.001), "tumbling 0.001 s"),
        (windows.tumbling_window(86_400.001), "tumbling 86400.001 s"),
        (windows.tumbling_window(YEAR), "tumbling 31622400 s"),
        (windows.sliding_window(60, 0.5), "sliding 60 s every 0.5 s"),
        (windows.sliding_window(60, 60), "sliding 60 s every 60 s"),
        (windows.session_window(30), "session with gaps of 30 s"),
        (windows.calendar_window("day", "Europe/Rome"), "each day in Europe/Rome"),
        (windows.calendar_window("week", ZoneInfo("UTC")), "each week in UTC"),
        (windows.calendar_window("month", "UTC"), "each month in UTC"),
        (windows.calendar_window("month", "UTC", 17), "each month in UTC from day 17"),
        (windows.calendar_window("year", "UTC", 6, 4), "each year in UTC from day 6 from month 4"),
        (windows.calendar_window("quarter", "UTC", 1, 11), "each quarter in UTC from month 2"),
    ],
)
def test_window_description(
    window: TumblingWindow | SlidingWindow | SessionWindow | CalendarWindow, words: str
) -> None:
    assert window.describe() == words


@given(st.integers(1_000, YEAR * 1_000_000), st.integers(1_000, YEAR * 1_000_000))
def test_different_windows_have_different_descriptions(a: int, b: int) -> None:
    assert (TumblingWindow(a).describe() == TumblingWindow(b).describe()) == (a == b)


@given(st.integers(1_000, YEAR * 1_000_000))
def test_lengths_are_exact_to_the_microsecond(micros: int) -> None:
    assert windows.tumbling_window(micros / 1_000_000).size_us == micros


@pytest.mark.parametrize(
    "seconds", [0, -1, 0.0001, YEAR + 1, 10**400, float("nan"), float("inf"), True, "5", None, [5]]
)
@pytest.mark.parametrize(
    ("option", "make"),
    [
        ("seconds", windows.tumbling_window),
        ("size", lambda size: windows.sliding_window(size, 1)),
        ("slide", lambda slide: windows.sliding_window(10, slide)),
        ("gap", windows.session_window),
    ],
)
def test_invalid_lengths_are_refused(option: str, make: Callable[[Any], Any], seconds: Any) -> None:
    with pytest.raises(InvalidOption, match=f"{option} must be a number of seconds from 0.001 to 31622400") as caught:
        make(seconds)
    assert caught.value.option == option


def test_slide_longer_than_the_window_is_refused() -> None:
    with pytest.raises(InvalidOption, match="count in none: make slide shorter"):
        windows.sliding_window(5, 6)


def test_more_than_a_thousand_windows_per_event_are_refused() -> None:
    assert windows.sliding_window(1000, 1).slide_us == 1_000_000
    with pytest.raises(InvalidOption, match="make slide longer"):
        windows.sliding_window(1000.001, 1)


@pytest.mark.parametrize("every", ["months", "Day", "", None, 5, ["day"]])
def test_unknown_calendar_units_are_refused(every: Any) -> None:
    with pytest.raises(InvalidOption, match="minute, hour, day, week") as caught:
        windows.calendar_window(every, "UTC")
    assert caught.value.option == "every"


@pytest.mark.parametrize(
    ("every", "anchors", "option"),
    [
        ("month", (0, 1), "anchor_day"),
        ("month", (32, 1), "anchor_day"),
        ("week", (2, 1), "anchor_day"),
        ("month", (1, 2), "anchor_month"),
        ("year", (1, 13), "anchor_month"),
        ("year", (1, "4"), "anchor_month"),
    ],
)
def test_anchors_that_do_not_fit_the_unit_are_refused(every: str, anchors: tuple[Any, Any], option: str) -> None:
    with pytest.raises(InvalidOption, match=option) as caught:
        windows.calendar_window(every, "UTC", *anchors)
    assert caught.value.option == option


@pytest.mark.parametrize("timezone", ["Mars/Olympus", "", "Europe", "../etc/passwd", "/etc/passwd", "a\0b", None, 5])
def test_unknown_time_zones_are_refused(timezone: Any) -> None:
    with pytest.raises(InvalidOption, match="'Europe/Rome'") as caught:
        windows.calendar_window("day", timezone)
    assert caught.value.option == "timezone"
