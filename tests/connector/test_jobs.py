"""Whole programs of a Spark user: killed again and again, over Spark Connect, on a Python that lacks the package."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from penstock.engine.spark.java import find_java
from tests.connector.jobs import COPY, REGISTERING_TOUR_OF_FRAMES, TOUR, environment, program
from tests.connector.packed import bare_python, packed_package
from tests.connector.test_ranges import fill
from tests.connector.test_staging import left_over
from tests.engine.crash.orders import eventually
from tests.engine.pipelines import Bench
from tests.engine.spark_cluster import kill_tree

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]

SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"


def java() -> dict[str, str]:
    return {"JAVA_HOME": str(find_java().home)}


@contextmanager
def running(command: list[str], log: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A program with all that it starts, until the block ends."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=env)
    try:
        yield process
    finally:
        kill_tree(process)


def copies(bench: Bench) -> list[int]:
    return sorted(event.data["n"] for event in bench.events("copies"))


def more_than(bench: Bench, before: int) -> Callable[[], bool]:
    return lambda: len(copies(bench)) > before


def test_a_stream_that_is_killed_again_and_again_writes_every_event_once(bench: Bench, tmp_path: Path) -> None:
    bench.queue()
    bench.queue("copies", "key")
    fill(bench, 1000)
    job, log = program(tmp_path, COPY), tmp_path / "log"
    env = environment(bench.url, **java())
    command = [sys.executable, str(job), str(tmp_path / "checkpoint")]
    for round in range(4):
        before = len(copies(bench))
        with running([*command, "on"], log, env):
            # Somewhere in the middle: between a commit and Spark's note of it, or while tasks write.
            eventually(more_than(bench, before), timeout=600, what=log.read_text())
            time.sleep(random.random())
        fill(bench, 1000, first=1000 * (round + 1))
    with running([*command, "once"], log, env) as last:
        assert last.wait(600) == 0, log.read_text()
    assert copies(bench) == list(range(5000))
    assert left_over(bench) == 0
    assert bench.ask("SELECT lag FROM penstock.lag WHERE group_name = 'copier'") <= 200


def toured(bench: Bench, said: str) -> None:
    assert "read 1000 10" in said, said
    assert "wrote 1000" in said, said
    assert "followed 2000" in said, said
    assert sorted(event.data["n"] for event in bench.events("copies")) == sorted([*range(1000), *range(1000)])


def test_over_spark_connect(bench: Bench, tmp_path: Path) -> None:
    bench.queue()
    bench.queue("copies")
    fill(bench, 1000)
    command = [sys.executable, str(program(tmp_path, TOUR)), "local[2]"]
    done = subprocess.run(command, env=environment(bench.url, **java()), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    toured(bench, done.stdout)


def test_with_the_package_as_a_zip_for_a_python_that_lacks_it(bench: Bench, tmp_path: Path) -> None:
    bench.queue()
    bench.queue("copies")
    fill(bench, 1000)
    archive, bare = packed_package(tmp_path), bare_python(tmp_path / "python")
    env = environment(bench.url, PYSPARK_PYTHON=str(bare), PYSPARK_DRIVER_PYTHON=str(bare), **java())
    env.pop("PYTHONPATH", None)
    missing = subprocess.run([str(bare), "-c", "import penstock.core"], env=env, capture_output=True)
    assert missing.returncode != 0, "the package is there without the zip"
    command = [str(SUBMIT), "--master", "local[2]", "--py-files", str(archive)]
    command.append(str(program(tmp_path, REGISTERING_TOUR_OF_FRAMES)))
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "read 1000 10" in done.stdout
    assert "wrote 1000" in done.stdout
    assert copies(bench) == list(range(1000))
