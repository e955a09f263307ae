"""The windows of the full-speed end-to-end run are checked against the journal of the load generator."""

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
#: Out of order, and across the end of a window.
JOURNAL = [(0, 2000, 10_900), (4000, 6000, 12_100), (2000, 4000, 11_999), (6000, 8000, 13_000)]


def test_expected_windows_follow_from_the_journal() -> None:
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


def test_wrong_missing_and_repeated_windows_are_found() -> None:
    wanted = [window for window in expected(JOURNAL, CLOSING) if window.closed]
    first, *others = sorted(wanted)
    wrong = replace(first, count=first.count + 1)

    assert problems(wanted, wanted[::-1]) == []
    assert problems(wanted, others) == [f"1 windows are missing or wrong, such as {first}"]
    assert problems(wanted, [*wanted, first]) == [f"1 windows are unexpected, such as {first}"]
    assert len(problems(wanted, [wrong, *others])) == 2
    assert len(problems(wanted, [replace(first, closed=False), *others])) == 2


@pytest.mark.parametrize("arguments", [["--day"], ["--day", "--quick"]])
def test_each_request_has_events_of_every_key(arguments: list[str]) -> None:
    """The watermark is the same in each partition, so the set of closed windows is deterministic."""
    plan = _plan(_parse(arguments))

    assert plan.closing is not None
    assert plan.events is not None
    assert plan.events % plan.batch == 0
    assert {key_of(seq) for seq in range(plan.batch)} == set(range(1000))


def test_page_shows_cpu_time_and_closed_windows() -> None:
    cores = {"engine": 1.0, "postgresql": 0.2, "server": 0.4, "pusher": 0.1}
    result = {"events": 50_000_000, "events_per_s": 200_000, "cores": cores, "windows": 6000, "closed_windows": 4000}
    (table,) = day(result).tables

    assert ["closed windows in the sink queue", 4000] in table.rows
    assert ["CPU s per million: engine", 5.0] in table.rows
