"""The counts of several worker processes, of which some die."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from penstock.server.metrics import counters
from penstock.server.metrics.counters import MOST_SERIES, OTHER, Instruments
from penstock.server.metrics.family import Distribution, Family


def value(process: Instruments, family: Family, *labels: str) -> float | Distribution:
    (found,) = (each for each in process.sampled() if each.family is family)
    return found.samples[labels]


def test_every_worker_shows_what_all_of_them_counted(tmp_path: Path) -> None:
    one, two = Instruments(tmp_path), Instruments(tmp_path)
    one.pushed("orders", accepted=3, rejected=1)
    two.pushed("orders", accepted=4, duplicates=2)
    two.committed(0.003)
    for process in (one, two):
        assert value(process, counters.RECEIVED, "orders") == 10
        assert value(process, counters.ACCEPTED, "orders") == 7
        commits = value(process, counters.COMMIT_SECONDS)
        assert isinstance(commits, Distribution)
        assert sum(commits.counts) == 1
        assert process.workers() == 2


def test_a_board_that_another_worker_is_just_making_is_passed_over(tmp_path: Path) -> None:
    tmp_path.joinpath("board-7").touch()
    one = Instruments(tmp_path)
    one.pushed("orders", accepted=3)
    assert value(one, counters.ACCEPTED, "orders") == 3


_DIES = """
import os, signal, sys
from pathlib import Path
from penstock.server.metrics.counters import Instruments
metrics = Instruments(Path(sys.argv[1]))
metrics.pushed("orders", accepted=5)
metrics.began()
print("counted", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_worker_counted_stays_and_what_it_was_doing_does_not(tmp_path: Path) -> None:
    watching = Instruments(tmp_path)
    for died in range(1, 4):
        ended = subprocess.run([sys.executable, "-c", _DIES, str(tmp_path)], check=False, capture_output=True)
        assert ended.stdout == b"counted\n"
        assert value(watching, counters.ACCEPTED, "orders") == 5 * died
        assert value(watching, counters.REQUESTS_IN_PROGRESS) == 0
        assert watching.workers() == 1
    # Each took over the board of the one before.
    assert sorted(os.listdir(tmp_path)) == ["board-0", "board-1"]
    assert value(Instruments(tmp_path), counters.REQUESTS_IN_PROGRESS) == 0


def test_a_worker_that_ended_in_order_leaves_its_counts_too(tmp_path: Path) -> None:
    first = Instruments(tmp_path)
    first.pushed("orders", accepted=5)
    first.board.close()
    second = Instruments(tmp_path)
    assert value(second, counters.ACCEPTED, "orders") == 5
    assert second.uptime() >= 0


def test_no_number_of_names_makes_more_series_than_there_is_room_for() -> None:
    process = Instruments()
    for number in range(2 * MOST_SERIES):
        process.pushed(f"queue-{number}", accepted=1)
    (accepted,) = (each for each in process.sampled() if each.family is counters.ACCEPTED)
    assert len(accepted.samples) == MOST_SERIES + 1
    assert accepted.samples[OTHER,] == MOST_SERIES
    assert accepted.sum() == 2 * MOST_SERIES


def test_throughput_is_what_was_accepted_lately(tmp_path: Path) -> None:
    one, two = Instruments(tmp_path), Instruments(tmp_path)
    assert one.throughput() == 0
    one.pushed("orders", accepted=500)
    two.pushed("orders", accepted=500)
    lately = one.board.read()[0].cells["recent"]
    assert sum(lately[1::2]) == 500
