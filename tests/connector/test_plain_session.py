"""A Spark session that Penstock does not configure, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.connector.read.test_batch import fill
from tests.connector.spark_jobs import TOUR_OF_FRAMES, environment, program
from tests.connector.test_spark_jobs import java
from tests.engine.pipelines import Bench


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_plain_spark_session_reads_filters_and_writes(bench: Bench, tmp_path: Path) -> None:
    for queue in ("orders", "copies"):
        bench.queue(queue)
    fill(bench, 1000)
    command = [sys.executable, str(program(tmp_path, TOUR_OF_FRAMES))]
    done = subprocess.run(command, env=environment(bench.url, **java()), capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["read 1000 10", "wrote 1000"]
    assert sorted(event.data["n"] for event in bench.events("copies")) == list(range(1000))
