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
from penstock.stream.windows import Calendar, Session, Sliding, Tumbling

YEAR = 366 * 86_400


@pytest.mark.parametrize(
    ("window", "words"),
    [
        (windows.tumbling(5), "tumbling 5 s"),
        (windows.tumbling(0.001), "tumbling 0.001 s"),
        (windows.tumbling(86_400.001), "tumbling 86400.001 s"),
        (windows.tumbling(YEAR), "tumbling 31622400 s"),
        (windows.sliding(60, 0.5), "sliding 60 s every 0.5 s"),
        (windows.sliding(60, 60), "sliding 60 s every 60 s"),
        (windows.session(30), "session with gaps of 30 s"),
        (windows.calendar("day", "Europe/Rome"), "each day in Europe/Rome"),
        (windows.calendar("week", ZoneInfo("UTC")), "each week in UTC"),
    ],
)
def test_a_window_describes_itself(window: Tumbling | Sliding | Session | Calendar, words: str) -> None:
    assert window.describe() == words


@given(st.integers(1_000, YEAR * 1_000_000), st.integers(1_000, YEAR * 1_000_000))
def test_windows_that_differ_never_read_the_same(a: int, b: int) -> None:
    assert (Tumbling(a).describe() == Tumbling(b).describe()) == (a == b)


@given(st.integers(1_000, YEAR * 1_000_000))
def test_seconds_are_kept_to_the_microsecond(micros: int) -> None:
    assert windows.tumbling(micros / 1_000_000).size_us == micros


@pytest.mark.parametrize(
    "seconds", [0, -1, 0.0001, YEAR + 1, 10**400, float("nan"), float("inf"), True, "5", None, [5]]
)
@pytest.mark.parametrize(
    ("option", "make"),
    [
        ("seconds", windows.tumbling),
        ("size", lambda size: windows.sliding(size, 1)),
        ("slide", lambda slide: windows.sliding(10, slide)),
        ("gap", windows.session),
    ],
)
def test_a_length_is_a_number_of_seconds(option: str, make: Callable[[Any], Any], seconds: Any) -> None:
    with pytest.raises(InvalidOption, match=f"{option} must be a number of seconds from 0.001 to 31622400") as caught:
        make(seconds)
    assert caught.value.option == option


def test_a_slide_longer_than_the_window_would_lose_events() -> None:
    with pytest.raises(InvalidOption, match="count in none: make it shorter"):
        windows.sliding(5, 6)


def test_an_event_counts_in_a_thousand_windows_at_the_most() -> None:
    assert windows.sliding(1000, 1).slide_us == 1_000_000
    with pytest.raises(InvalidOption, match="make slide longer"):
        windows.sliding(1000.001, 1)


@pytest.mark.parametrize("every", ["month", "Day", "", None, 5, ["day"]])
def test_a_calendar_has_four_units(every: Any) -> None:
    with pytest.raises(InvalidOption, match="minute, hour, day, week") as caught:
        windows.calendar(every, "UTC")
    assert caught.value.option == "every"


@pytest.mark.parametrize("timezone", ["Mars/Olympus", "", "Europe", "../etc/passwd", "/etc/passwd", "a\0b", None, 5])
def test_a_time_zone_must_be_known(timezone: Any) -> None:
    with pytest.raises(InvalidOption, match="'Europe/Rome'") as caught:
        windows.calendar("day", timezone)
    assert caught.value.option == "timezone"
