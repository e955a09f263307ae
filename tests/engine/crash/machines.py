"""Programs that run with directories of their own, as on a machine of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from penstock.engine.spark.java import find_java
from tests.engine.crash.orders import QUERY, SINK, WINDOW_SECONDS
from tests.engine.spark_cluster import kill_tree

#: Options of both commands for a cluster with little memory.
SMALL = (
    *("--conf", "spark.executor.memory=512m", "--conf", "spark.executor.cores=1"),
    *("--conf", "spark.driver.memory=1g", "--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"),
)
#: The pipeline of the other tests as a file of streams.
PIPELINE = f"""
from penstock import Stream, agg

{QUERY} = (
    Stream.from_("orders")
    .window_tumbling(seconds={WINDOW_SECONDS}, event_time="at", idle_flush_seconds=86_400)
    .aggregate({{"events": agg.count(), "total": agg.sum("amount")}})
    .to("{SINK}")
)
"""
#: The same as a program that runs without Penstock's commands.
PROGRAM = f"{PIPELINE}\n{QUERY}.run({QUERY!r}, interval_seconds=0)\n"


def penstock_run(master: str, *more: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "penstock", "run", "app.py", "--master", master, *SMALL, *more)


def spark_submit(master: str, *more: str) -> tuple[str, ...]:
    return (str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", master, *SMALL, *more, "app.py")


@dataclass(frozen=True)
class Running:
    """A program that runs, and its log."""

    process: subprocess.Popen[bytes]
    log: Path

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def terminate(self) -> int:
        """Send SIGTERM to the program, as a supervisor does, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


class Machine:
    """Its home, temporary files and working directory are used by no other machine."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._temporary = directory / "tmp"
        self._temporary.mkdir(parents=True)

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text)
        return path

    @contextmanager
    def running(self, *command: str, **variables: str) -> Iterator[Running]:
        """Run a program until the block ends, then kill it with all of its children."""
        log = self.directory / "log"
        variables = {
            "TMPDIR": str(self._temporary),
            "SPARK_LOCAL_DIRS": str(self._temporary),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "HOME": str(self.directory),
            "XDG_CACHE_HOME": str(self.directory / "cache"),
            "JAVA_HOME": str(find_java().home),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONUNBUFFERED": "1",
            **variables,
        }
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | variables,
            )
        try:
            yield Running(process, log)
        finally:
            kill_tree(process)
