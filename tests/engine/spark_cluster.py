"""A standalone Spark cluster on loopback: a master and workers as processes of their own, from the pip package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil
from pyspark.find_spark_home import _find_spark_home

from penstock.engine.spark.java import find_java

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Daemon:
    """A master or worker; ``log`` holds all that it said."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self, pattern: str) -> re.Match[str] | None:
        return re.search(pattern, self.log.read_text(errors="replace"))


class SparkCluster:
    """A master and ``workers`` workers with one core and 1 GB each, until the ``with`` block ends.

    A driver needs ``spark.executor.memory`` of at most 1 GB, or no worker takes its executors. ``environment`` is what
    the workers' machines have set otherwise than this one; the executors inherit it. ``conf`` is the daemons' own.
    """

    def __init__(
        self,
        directory: Path,
        *,
        workers: int = 2,
        environment: Mapping[str, str] | None = None,
        conf: Mapping[str, str] | None = None,
        timeout: float = 90,
    ) -> None:
        self._directory = directory
        self._count = workers
        self._set = dict(environment or {})
        # A master that is started again is where drivers look for it, or fails.
        quiet = {"spark.master.rest.enabled": "false", "spark.ui.enabled": "false", "spark.port.maxRetries": "0"}
        self._conf = quiet | dict(conf or {})
        self._timeout = timeout
        #: Those that were started, also those that were killed.
        self.masters: list[Daemon] = []
        self.workers: list[Daemon] = []
        self.url = ""

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True)
        try:
            self.start_master()
            for _ in range(self._count):
                self.start_worker()
            for worker in self.workers:
                self._wait_until_logged("Successfully registered with master", worker)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start_master(self) -> None:
        """Start it, where the one before it was. It knows of that one's workers and drivers if ``conf`` keeps them."""
        port = self.url.rpartition(":")[2] or "0"
        name = f"master-{len(self.masters) + 1}"
        master = self._start(name, "master.Master", "--port", port)
        self.masters.append(master)
        self.url = self._wait_until_logged(r"Starting Spark master at (spark://\S+)", master)[1]

    def kill_master(self) -> None:
        """``kill -9`` it."""
        kill_tree(self.masters[-1].process)

    def start_worker(self) -> Daemon:
        """Start one more; it registers by itself soon after."""
        name = f"worker-{len(self.workers) + 1}"
        work = self._directory / name
        limits = ("--cores", "1", "--memory", "1g", "--work-dir", str(work), self.url)
        worker = self._start(name, "worker.Worker", "--port", "0", *limits)
        self.workers.append(worker)
        return worker

    def kill_worker(self, index: int = 0) -> None:
        """``kill -9`` a worker and all that it started: its executors, and their Python workers."""
        kill_tree(self.workers[index].process)

    def executors(self, index: int = 0) -> list[psutil.Process]:
        """The executors that run on a worker now."""
        found = []
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.workers[index].pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in process.cmdline():
                        found.append(process)
        return found

    def files(self) -> list[Path]:
        """All that master, workers and executors have written down; call it when the executors have ended."""
        return [Path(place, name) for place, _, names in os.walk(self._directory) for name in names]

    def stop(self) -> None:
        """Stop all that was started."""
        for daemon in (*self.workers, *self.masters):
            kill_tree(daemon.process)

    def _start(self, name: str, kind: str, *arguments: str) -> Daemon:
        log = self._directory / f"{name}.log"
        address = ("--host", LOOPBACK, "--webui-port", "0")
        spark_home = _find_spark_home()
        with log.open("wb") as output:
            # bin/spark-class replaces itself by the JVM, so its pid is the daemon's.
            process = subprocess.Popen(
                [f"{spark_home}/bin/spark-class", f"org.apache.spark.deploy.{kind}", *address, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | self._environment(spark_home) | self._set,
                cwd=self._directory,
            )
        return Daemon(process, log)

    def _environment(self, spark_home: str) -> dict[str, str]:
        conf = " ".join(f"-D{name}={value}" for name, value in self._conf.items())
        return {
            "JAVA_HOME": str(find_java().home),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": spark_home,
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_PUBLIC_DNS": LOOPBACK,
            "SPARK_LOCAL_DIRS": str(self._directory / "scratch"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 {conf}",
        }

    def _wait_until_logged(self, pattern: str, daemon: Daemon) -> re.Match[str]:
        deadline = time.monotonic() + self._timeout
        while (match := daemon.said(pattern)) is None:
            if daemon.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{daemon.log.name}: not ready\n{daemon.log.read_text(errors='replace')}")
            time.sleep(0.05)
        return match


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """``kill -9`` a process and all that it started."""
    if process.poll() is None:
        # The parent first, so that it starts no more children.
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, timeout=30)
    process.wait()
