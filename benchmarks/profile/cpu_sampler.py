"""CPU time by component, from the kernel counters of every process and every thread of the JVM.

The CPU time that a process or thread spends between its last sample and its end is missing from the samples. It follows
from the kernel's totals of ended processes and threads, and is reported as its own component.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import psycopg

from benchmarks.engines.cpu import cpu_seconds
from benchmarks.freshness.plan import OBSERVER
from benchmarks.log.server import Server
from benchmarks.profile import names

_SAMPLE_SECONDS = 0.2
_TICKS = os.sysconf("SC_CLK_TCK")
_BACKENDS = "SELECT pid, coalesce(application_name, ''), coalesce(backend_type, '') FROM pg_stat_activity"


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds, and the part of them in kernel mode."""

    seconds: float = 0.0
    kernel: float = 0.0

    def __add__(self, other: Cpu) -> Cpu:
        return Cpu(self.seconds + other.seconds, self.kernel + other.kernel)

    def __sub__(self, other: Cpu) -> Cpu:
        return Cpu(self.seconds - other.seconds, self.kernel - other.kernel)


@dataclass(frozen=True, slots=True)
class Stat:
    """The CPU time of a process or thread, from /proc."""

    #: The id and the start time, because ids are reused.
    identity: tuple[int, int]
    name: str
    cpu: Cpu

    @classmethod
    def parse(cls, text: str) -> Stat:
        """Parse a ``stat`` file. The name may contain blanks and brackets, the fields after it do not."""
        head, _, tail = text.rpartition(")")
        number, _, name = head.partition(" (")
        fields = tail.split()
        user, kernel, start = (int(fields[index]) for index in (11, 12, 19))
        return cls((int(number), start), name, Cpu((user + kernel) / _TICKS, kernel / _TICKS))


class CpuSampler(threading.Thread):
    """Samples the process tree of an engine and a PostgreSQL server inside ``with``."""

    def __init__(self, engine: int, server: Server) -> None:
        super().__init__(daemon=True)
        self._engine, self._server = psutil.Process(engine), server
        self._conn = psycopg.connect(server.url, autocommit=True, application_name=OBSERVER)
        self._parts: dict[tuple[int, int], str] = {}
        self._before: dict[tuple[int, int], Cpu] = {}
        self._now: dict[tuple[int, int], Cpu] = {}
        self._done = threading.Event()
        # All CPU time, including that of unsampled processes, but without the observers.
        self._engine_total = self._server_total = 0.0

    @property
    def total(self) -> float:
        """The total CPU seconds between the first and the last sample."""
        return self._engine_total + self._server_total

    def by_part(self) -> dict[str, Cpu]:
        """Return the CPU time of each component between the first and the last sample."""
        spent = self._spent()
        del spent[names.OBSERVERS]
        # The kernel adds the CPU time of an ended thread to its process.
        if (process_total := spent.pop(names.JVM_ALONE, None)) is not None:
            seen = sum((cpu for part, cpu in spent.items() if part.startswith(names.JVM)), Cpu())
            spent[names.JVM_SHORT] = spent.get(names.JVM_SHORT, Cpu()) + process_total - seen
        server_seconds = sum(cpu.seconds for part, cpu in spent.items() if part.startswith(names.POSTGRESQL))
        engine_seconds = sum(cpu.seconds for cpu in spent.values()) - server_seconds
        unsampled = {
            names.ENDED: self._engine_total - engine_seconds,
            names.ENDED_OF_SERVER: self._server_total - server_seconds,
        }
        return spent | {part: Cpu(seconds) for part, seconds in unsampled.items() if seconds > 0}

    def run(self) -> None:
        """Sample until stopped."""
        while not self._done.wait(_SAMPLE_SECONDS):
            self._sample()

    def __enter__(self) -> Self:
        self._sample()
        self._before = dict(self._now)
        self._engine_total, self._server_total = -cpu_seconds(self._engine), -self._server.cpu_seconds()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self.join()
        self._sample()
        self._engine_total += cpu_seconds(self._engine)
        self._server_total += self._server.cpu_seconds() - self._spent()[names.OBSERVERS].seconds
        self._conn.close()

    def _spent(self) -> dict[str, Cpu]:
        spent: defaultdict[str, Cpu] = defaultdict(Cpu)
        for identity, part in self._parts.items():
            spent[part] += self._now[identity] - self._before[identity]
        return spent

    def _sample(self) -> None:
        for part, stat in [*self._sample_engine(), *self._sample_server()]:
            self._parts.setdefault(stat.identity, part)
            self._before.setdefault(stat.identity, Cpu())
            self._now[stat.identity] = stat.cpu

    def _sample_engine(self) -> Iterator[tuple[str, Stat]]:
        yield from _processes([(names.DRIVER, self._engine.pid)])
        for process in self._engine.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if process.name() == "java":
                    yield from _threads(process.pid)
                    for _, stat in _processes([("", process.pid)]):
                        yield names.JVM_ALONE, replace(stat, identity=(-process.pid, stat.identity[1]))
                else:
                    yield from _processes([(names.process_part(" ".join(process.cmdline())), process.pid)])

    def _sample_server(self) -> Iterator[tuple[str, Stat]]:
        backends = self._conn.execute(_BACKENDS).fetchall()
        yield from _processes((names.backend_part(application, kind), pid) for pid, application, kind in backends)
        yield from _processes([(names.backend_part("", "postmaster"), self._server.pid)])


def _processes(processes: Iterable[tuple[str, int]]) -> Iterator[tuple[str, Stat]]:
    for part, pid in processes:
        with suppress(OSError):
            yield part, Stat.parse(Path(f"/proc/{pid}/stat").read_text())


def _threads(pid: int) -> Iterator[tuple[str, Stat]]:
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):
            stat = Stat.parse(path.read_text())
            yield names.thread_part(stat.name), stat
