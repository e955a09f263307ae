"""Programs of a Spark user: killed repeatedly, over Spark Connect, and on a Python without Penstock."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from penstock.engine.spark.java import find_java
from tests.connector.package_zip import bare_python, packed_package
from tests.connector.read.test_batch import fill
from tests.connector.spark_jobs import COPY, REGISTERING_TOUR_OF_FRAMES, TOUR, environment, program
from tests.connector.write.test_staged_writer import left_over
from tests.engine.crash.orders import eventually
from tests.engine.pipelines import Bench
from tests.engine.spark_cluster import kill_tree

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

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


def test_killed_stream_writes_every_event_once(bench: Bench, tmp_path: Path) -> None:
    bench.queue()
    bench.queue("copies", "key")
    fill(bench, 1000)
    job, log = program(tmp_path, COPY), tmp_path / "log"
    env = environment(bench.url, **java())
    command = [sys.executable, str(job), str(tmp_path / "checkpoint")]
    for round in range(4):
        before = len(copies(bench))
        with running([*command, "on"], log, env):
            # The kill may hit between the commit of the queue and that of Spark, or while tasks write.
            eventually(more_than(bench, before + random.randrange(400)), timeout=600, what=log.read_text())
        fill(bench, 1000, first=1000 * (round + 1))
    with running([*command, "once"], log, env) as last:
        assert last.wait(600) == 0, log.read_text()
    assert copies(bench) == list(range(5000))
    assert left_over(bench) == 0
    assert bench.ask("SELECT lag FROM penstock.lag WHERE group_name = 'copier'") <= 200


def check_tour(bench: Bench, output: str) -> None:
    assert "read 1000 10" in output, output
    assert "wrote 1000" in output, output
    assert "followed 2000" in output, output
    assert sorted(event.data["n"] for event in bench.events("copies")) == sorted([*range(1000), *range(1000)])


def test_spark_connect(bench: Bench, tmp_path: Path) -> None:
    bench.queue()
    bench.queue("copies")
    fill(bench, 1000)
    command = [sys.executable, str(program(tmp_path, TOUR)), "local[2]"]
    done = subprocess.run(command, env=environment(bench.url, **java()), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    check_tour(bench, done.stdout)


def test_zipped_package_on_a_python_without_penstock(bench: Bench, tmp_path: Path) -> None:
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
