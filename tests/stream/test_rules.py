"""When rules fire and clear, compared with a plain Python oracle."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.core.errors import InvalidOption, InvalidRequest
from penstock.stream.rule_evaluation import (
    Alert,
    KeyState,
    evaluate_absence,
    evaluate_closed_window,
    evaluate_open_window,
)
from penstock.stream.rules import Condition, Rule, above, absent, below, change, rule, zscore

BEGIN = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def made(when: Condition, **options: Any) -> Rule:
    return rule("r", on="results", when=when, **options)


def window(n: int, value: object) -> dict[str, object]:
    start = BEGIN + timedelta(seconds=5 * n)
    return {
        "value": value,
        "window_start": start.isoformat(),
        "window_end": (start + timedelta(seconds=5)).isoformat(),
    }


def run(rule: Rule, values: Sequence[object]) -> list[tuple[int, str]]:
    """At which windows the rule fires and clears."""
    state = KeyState()
    found: list[tuple[int, str]] = []
    for n, value in enumerate(values):
        state, alert = evaluate_closed_window(rule, state, "k", window(n, value), BEGIN + timedelta(seconds=5 * n))
        # The state is stored as JSON.
        state = msgspec.json.decode(msgspec.json.encode(state), type=KeyState)
        if alert is not None:
            found.append((n, alert.state))
    return found


@pytest.mark.parametrize(
    ("rule", "values", "alerts"),
    [
        (made(above(80)), [10, 81, 90, 80, 85], [(1, "firing"), (3, "cleared"), (4, "firing")]),
        (made(above(80, clear=70)), [81, 75, 79, 70, 75], [(0, "firing"), (3, "cleared")]),
        (made(below(10, clear=20)), [9, 15, 19, 20, 15], [(0, "firing"), (3, "cleared")]),
        (made(above(80), fire_after=2), [81, 70, 81, 82, 83], [(3, "firing")]),
        (made(above(80), clear_after=2), [81, 70, 81, 70, 70], [(0, "firing"), (4, "cleared")]),
        (made(change(0.5, over=3)), [10, 10, 10, 14, 20], [(4, "firing")]),
        (made(change(0.5, over=2)), [10, 10, 4, 7], [(2, "firing"), (3, "cleared")]),
        (made(zscore(3, over=4)), [10, 11, 9, 10, 11, 30], [(5, "firing")]),
        (made(zscore(3, over=4)), [5, 5, 5, 5, 5, 6], [(5, "firing")]),
        (made(above(80)), [None, "hot", True, {}, float("nan"), 81], [(5, "firing")]),
    ],
)
def test_rules_fire_and_clear(rule: Rule, values: list[object], alerts: list[tuple[int, str]]) -> None:
    assert run(rule, values) == alerts


numbers = st.lists(st.integers(-100, 100), max_size=60)


@given(numbers, st.integers(-50, 50), st.integers(0, 30), st.integers(1, 4), st.integers(1, 4))
def test_hysteresis_agrees_with_a_plain_loop(
    values: list[int], limit: int, gap: int, fire_after: int, clear_after: int
) -> None:
    firing, streak, expected = False, 0, []
    for n, value in enumerate(values):
        turns = value <= limit - gap if firing else value > limit
        streak = streak + 1 if turns else 0
        if streak == (clear_after if firing else fire_after):
            firing, streak = not firing, 0
            expected.append((n, "firing" if firing else "cleared"))

    assert (
        run(made(above(limit, clear=limit - gap), fire_after=fire_after, clear_after=clear_after), values) == expected
    )


@given(numbers, st.integers(-50, 50), st.integers(0, 30))
def test_below_mirrors_above(values: list[int], limit: int, gap: int) -> None:
    upside_down = run(made(above(-limit, clear=-limit - gap)), [-value for value in values])
    assert run(made(below(limit, clear=limit + gap)), values) == upside_down


@given(numbers, st.integers(2, 6))
def test_zscore_agrees_with_the_statistics_module(values: list[int], over: int) -> None:
    firing, expected, before = False, [], values[:over]
    for n in range(over, len(values)):
        spread, away = statistics.pstdev(before), abs(values[n] - statistics.fmean(before))
        assume(not (spread and 2.4999999 < away / spread <= 2.5000001))
        is_off = away > 1e-6 and (spread == 0 or away / spread > 2.5)
        if not (is_off or firing):
            before = [*before[1:], values[n]]
        if is_off != firing:
            firing = is_off
            expected.append((n, "firing" if firing else "cleared"))

    assert run(made(zscore(2.5, over=over)), values) == expected


@given(numbers)
def test_firing_and_cleared_alerts_alternate(values: list[int]) -> None:
    found = [state for _, state in run(made(above(0, clear=-20), fire_after=2), values)]
    assert found == ["firing", "cleared"] * (len(found) // 2) + ["firing"] * (len(found) % 2)


@pytest.mark.parametrize("fire_after", [1, 3])
def test_a_surge_clears_when_it_is_over_and_not_at_its_peak(fire_after: int) -> None:
    surge = [100, 104, 98, 101, 97, *[900] * 40, 100, 99]
    rules = [made(zscore(3, over=5), fire_after=fire_after), made(change(0.5, over=5), fire_after=fire_after)]
    for surging in rules:
        assert run(surging, surge) == [(4 + fire_after, "firing"), (45, "cleared")]


def test_messages_have_the_value_and_the_expected_one() -> None:
    state, messages = KeyState(), []
    for n, value in enumerate([100, 104, 96, 900, 1024, 98]):
        state, alert = evaluate_closed_window(made(zscore(3, over=3)), state, "k", window(n, value), BEGIN)
        if alert is not None:
            messages.append((alert.message, alert.value, alert.expected))
    assert messages == [
        ("k: value is 900, where 100 was expected", 900, 100),
        ("k: value is 98 again, where 100 is expected", 98, 100),
    ]


def test_correction_of_an_older_window_is_ignored() -> None:
    state, alert = evaluate_closed_window(made(above(80)), KeyState(), "k", window(5, 90), BEGIN)
    assert alert is not None
    assert evaluate_closed_window(made(above(80)), state, "k", window(5, 10), BEGIN) == (state, None)
    assert evaluate_closed_window(made(above(80)), state, "k", window(3, 10), BEGIN) == (state, None)


def test_results_without_windows_are_all_evaluated() -> None:
    hot, state, found = made(above(80)), KeyState(), []
    for value in (20, 95, 99, 10, 81):
        state, alert = evaluate_closed_window(hot, state, "k", {"value": value}, BEGIN)
        found += [] if alert is None else [(alert.state, alert.value, state.turns)]
    assert found == [("firing", 95, 1), ("cleared", 10, 2), ("firing", 81, 3)]


def test_absent_fires_once_and_clears_with_the_next_window() -> None:
    quiet = made(absent(30))
    state, alert = evaluate_absence(quiet, KeyState(), "k", BEGIN)
    assert alert == Alert("r", "k", "firing", BEGIN, "k: nothing for 30 s", limit=30.0)
    assert evaluate_absence(quiet, state, "k", BEGIN)[1] is None
    state, alert = evaluate_closed_window(quiet, state, "k", window(1, None), BEGIN)
    assert alert is not None
    assert (alert.state, alert.message) == ("cleared", "k is back")


def test_open_window_can_only_fire_a_rule() -> None:
    surge = made(above(100), live="q")
    state, alert = evaluate_open_window(surge, KeyState(), "k", window(1, 101), BEGIN)
    assert alert is not None
    assert alert.state == "firing"
    assert evaluate_open_window(surge, state, "k", window(1, 5), BEGIN) == (state, None)
    state, cleared = evaluate_closed_window(surge, state, "k", window(1, 90), BEGIN)
    assert cleared is not None
    assert evaluate_open_window(surge, state, "k", window(1, 101), BEGIN) == (state, None), (
        "it has closed since it was looked up"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: above(float("nan")),
        lambda: above(80, clear=81),
        lambda: below(10, clear=9),
        lambda: change(0),
        lambda: change(0.5, over=0),
        lambda: zscore(3, over=1),
        lambda: absent(-1),
        lambda: made(below(3), live="q"),
        lambda: made(above(3), expect=["a"]),
        lambda: made(above(3), fire_after=0),
        lambda: made(above(3), alerts="results"),
        lambda: rule("r", on="results", when="hot"),  # type: ignore[arg-type]
    ],
)
def test_invalid_rules_are_refused(wrong: Any) -> None:
    with pytest.raises((InvalidOption, InvalidRequest)):
        wrong()


@pytest.mark.parametrize(
    ("when", "values", "messages"),
    [
        (above(101.58), [1234567, 101.58], ["is 1,234,567, above 101.58", "is 101.58 again, and it clears at 101.58"]),
        (
            below(1234567, clear=1234568.25),
            [1, 1234569],
            ["is 1, below 1,234,567", "is 1,234,569 again, and it clears at 1,234,568.25"],
        ),
        (
            change(1, over=3),
            [1, 1, 2, 1234567, 1],
            ["is 1,234,567, where 1.3333 was expected", "is 1 again, where 1.3333 is expected"],
        ),
        (change(1, over=1), [1234567, 0.5, 3e6], ["is 3,000,000, where 0.50 was expected"]),
    ],
)
def test_messages_have_exact_numbers(when: Condition, values: list[float], messages: list[str]) -> None:
    state = KeyState()
    found: list[str] = []
    for n, value in enumerate(values):
        state, alert = evaluate_closed_window(made(when), state, "k", window(n, value), BEGIN)
        found += [] if alert is None else [alert.message]
    assert found == [f"k: value {message}" for message in messages]


def test_the_message_of_an_absence_has_its_seconds() -> None:
    _, alert = evaluate_absence(made(absent(1234567.5)), KeyState(), "k", BEGIN)
    assert alert is not None
    assert alert.message == "k: nothing for 1,234,567.5 s"
