"""Counters of several worker processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from penstock.server.metrics import counters
from penstock.server.metrics.counters import MAX_SERIES, OTHER_LABEL, ServerMetrics
from penstock.server.metrics.exposition import MetricsSnapshot
from penstock.server.metrics.family import HistogramValue, MetricFamily
from tests.conditions import eventually


def value(process: ServerMetrics, family: MetricFamily, *labels: str) -> float | HistogramValue:
    return process.collect()[family][labels]


def test_metrics_are_added_up_over_workers(tmp_path: Path) -> None:
    one, two = ServerMetrics(tmp_path), ServerMetrics(tmp_path)
    one.count_push("orders", accepted=3, rejected=1)
    two.count_push("orders", accepted=4, duplicates=2)
    two.commits.observe(0.003)
    for process in (one, two):
        assert value(process, counters.RECEIVED, "orders") == 10
        assert value(process, counters.ACCEPTED, "orders") == 7
        commits = value(process, counters.COMMIT_SECONDS)
        assert isinstance(commits, HistogramValue)
        assert sum(commits.counts) == 1
        assert process.workers() == 2


def test_incomplete_counter_file_is_ignored(tmp_path: Path) -> None:
    tmp_path.joinpath("counters-7").touch()
    one = ServerMetrics(tmp_path)
    one.count_push("orders", accepted=3)
    assert value(one, counters.ACCEPTED, "orders") == 3


_COUNT_AND_DIE = """
import os, signal, sys
from pathlib import Path
from penstock.server.metrics.counters import ServerMetrics
from tests.conditions import eventually
metrics = ServerMetrics(Path(sys.argv[1]))
metrics.count_push("orders", accepted=5)
metrics.requests_in_progress.add(1)
print("counted", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_counters_of_a_killed_worker_stay_and_its_gauges_do_not(tmp_path: Path) -> None:
    watching = ServerMetrics(tmp_path)
    for deaths in range(1, 4):
        ended = subprocess.run([sys.executable, "-c", _COUNT_AND_DIE, str(tmp_path)], check=False, capture_output=True)
        assert ended.stdout == b"counted\n"
        assert value(watching, counters.ACCEPTED, "orders") == 5 * deaths
        assert value(watching, counters.REQUESTS_IN_PROGRESS) == 0
        assert watching.workers() == 1
    # Each process took over the file of the previous one.
    assert sorted(os.listdir(tmp_path)) == ["counters-0", "counters-1"]
    assert value(ServerMetrics(tmp_path), counters.REQUESTS_IN_PROGRESS) == 0


def test_counters_of_a_stopped_worker_stay(tmp_path: Path) -> None:
    first = ServerMetrics(tmp_path)
    first.count_push("orders", accepted=5)
    first.close()
    second = ServerMetrics(tmp_path)
    assert value(second, counters.ACCEPTED, "orders") == 5
    assert second.uptime() >= 0


def test_number_of_series_is_limited() -> None:
    process = ServerMetrics()
    for number in range(2 * MAX_SERIES):
        process.count_push(f"queue-{number}", accepted=1)
    samples = process.collect()
    assert len(samples[counters.ACCEPTED]) == MAX_SERIES + 1
    assert samples[counters.ACCEPTED][OTHER_LABEL,] == MAX_SERIES
    assert MetricsSnapshot(samples).total(counters.ACCEPTED) == 2 * MAX_SERIES


def test_throughput_counts_recently_accepted_events(tmp_path: Path) -> None:
    one, two = ServerMetrics(tmp_path), ServerMetrics(tmp_path)
    assert one.throughput() == 0
    one.count_push("orders", accepted=500)
    two.count_push("orders", accepted=500)
    # Only whole seconds count. Uptime and throughput are read at slightly different times.
    eventually(lambda: round(one.throughput() * max(1.0, one.uptime())) == 1000)
