"""A day's windows are judged by what the pusher wrote down, each of them, and closed ones once."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from decimal import Decimal

import pytest

from benchmarks.e2e.command import _parse, _plan
from benchmarks.e2e.events import CENTS, CENTS_STEP, key_of
from benchmarks.e2e.windows import Window, expected, problems
from benchmarks.engines.jobs import Closing
from benchmarks.page.queues import day

CLOSING = Closing("closed", window_seconds=2, lateness_seconds=1)
#: Out of order, and over an end of a window.
JOURNAL = [(0, 2000, 10_900), (4000, 6000, 12_100), (2000, 4000, 11_999), (6000, 8000, 13_000)]


def test_what_a_window_holds_follows_from_the_journal() -> None:
    events: dict[tuple[str, int], list[int]] = defaultdict(list)
    for first, last, stamp_ms in JOURNAL:
        for seq in range(first, last):
            events[f"k{key_of(seq)}", stamp_ms // 2000 * 2000].append(seq)

    assert sorted(expected(JOURNAL, CLOSING)) == sorted(
        Window(
            key,
            start_ms,
            len(numbers),
            Decimal(sum(seq * CENTS_STEP % CENTS for seq in numbers)) / 100,
            max(numbers),
            closed=start_ms == 10_000,
        )
        for (key, start_ms), numbers in events.items()
    )


def test_a_window_that_is_wrong_missing_or_there_twice_is_found() -> None:
    wanted = [window for window in expected(JOURNAL, CLOSING) if window.closed]
    first, *others = sorted(wanted)
    wrong = replace(first, count=first.count + 1)

    assert problems(wanted, wanted[::-1]) == []
    assert problems(wanted, others) == [f"1 windows are missing or wrong, such as {first}"]
    assert problems(wanted, [*wanted, first]) == [f"1 windows are there that should not be so, such as {first}"]
    assert len(problems(wanted, [wrong, *others])) == 2
    assert len(problems(wanted, [replace(first, closed=False), *others])) == 2


@pytest.mark.parametrize("arguments", [["--day"], ["--day", "--quick"]])
def test_a_request_of_a_day_has_events_of_every_key(arguments: list[str]) -> None:
    """Time comes equally far in each partition, so that which windows are closed is no chance."""
    plan = _plan(_parse(arguments))

    assert plan.closing is not None
    assert plan.events is not None
    assert plan.events % plan.batch == 0
    assert {key_of(seq) for seq in range(plan.batch)} == set(range(1000))


def test_the_page_says_what_a_day_cost_and_how_many_windows_closed() -> None:
    cores = {"engine": 1.0, "postgresql": 0.2, "server": 0.4, "pusher": 0.1}
    result = {"events": 50_000_000, "events_per_s": 200_000, "cores": cores, "windows": 6000, "closed_windows": 4000}
    (table,) = day(result).tables

    assert ["of them closed, in the sink queue once", 4000] in table.rows
    assert ["CPU s per million: engine", 5.0] in table.rows
