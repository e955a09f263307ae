"""CPU time by part, from what the kernel counts for every process and every thread of the JVM.

Who ends between two looks takes along what it spent since the last one. The sums that the kernel keeps of threads and
processes that have ended say how much that was; it stands as a part of its own.
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

_LOOK_SECONDS = 0.2
_TICKS = os.sysconf("SC_CLK_TCK")
_BACKENDS = "SELECT pid, coalesce(application_name, ''), coalesce(backend_type, '') FROM pg_stat_activity"


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds: all, and those of them that the kernel worked, which is where network and disk are."""

    seconds: float = 0.0
    kernel: float = 0.0

    def __add__(self, other: Cpu) -> Cpu:
        return Cpu(self.seconds + other.seconds, self.kernel + other.kernel)

    def __sub__(self, other: Cpu) -> Cpu:
        return Cpu(self.seconds - other.seconds, self.kernel - other.kernel)


@dataclass(frozen=True, slots=True)
class Stat:
    """The entry of a process or thread in /proc."""

    #: With the moment of its start, since numbers are used again.
    who: tuple[int, int]
    name: str
    cpu: Cpu

    @classmethod
    def parse(cls, text: str) -> Stat:
        """From a file ``stat``: a name may have blanks and brackets in it; what follows the last bracket has none."""
        head, _, tail = text.rpartition(")")
        number, _, name = head.partition(" (")
        fields = tail.split()
        user, kernel, start = (int(fields[place]) for place in (11, 12, 19))
        return cls((int(number), start), name, Cpu((user + kernel) / _TICKS, kernel / _TICKS))


class Accounts(threading.Thread):
    """Looks, from ``with`` on until its end, at an engine with all below it and at a PostgreSQL."""

    def __init__(self, engine: int, server: Server) -> None:
        super().__init__(daemon=True)
        self._engine, self._server = psutil.Process(engine), server
        self._conn = psycopg.connect(server.url, autocommit=True, application_name=OBSERVER)
        self._parts: dict[tuple[int, int], str] = {}
        self._before: dict[tuple[int, int], Cpu] = {}
        self._now: dict[tuple[int, int], Cpu] = {}
        self._over = threading.Event()
        # What all of them have spent, also those that nobody saw; without who only watches.
        self._engine_total = self._server_total = 0.0

    @property
    def total(self) -> float:
        """CPU seconds of everything from the first look to the last."""
        return self._engine_total + self._server_total

    def by_part(self) -> dict[str, Cpu]:
        """Return the CPU time of each part between the first and the last sample."""
        spent = self._spent()
        del spent[names.OBSERVERS]
        # The kernel adds the time of a thread that ends to that of its process.
        if (whole := spent.pop(names.JVM_ALONE, None)) is not None:
            seen = sum((cpu for part, cpu in spent.items() if part.startswith(names.JVM)), Cpu())
            spent[names.JVM_SHORT] = spent.get(names.JVM_SHORT, Cpu()) + whole - seen
        of_server = sum(cpu.seconds for part, cpu in spent.items() if part.startswith(names.POSTGRESQL))
        of_engine = sum(cpu.seconds for cpu in spent.values()) - of_server
        unseen = {names.ENDED: self._engine_total - of_engine, names.ENDED_OF_SERVER: self._server_total - of_server}
        return spent | {part: Cpu(seconds) for part, seconds in unseen.items() if seconds > 0}

    def run(self) -> None:
        """Look until told to stop."""
        while not self._over.wait(_LOOK_SECONDS):
            self._look()

    def __enter__(self) -> Self:
        self._look()
        self._before = dict(self._now)
        self._engine_total, self._server_total = -cpu_seconds(self._engine), -self._server.cpu_seconds()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self.join()
        self._look()
        self._engine_total += cpu_seconds(self._engine)
        self._server_total += self._server.cpu_seconds() - self._spent()[names.OBSERVERS].seconds
        self._conn.close()

    def _spent(self) -> dict[str, Cpu]:
        spent: defaultdict[str, Cpu] = defaultdict(Cpu)
        for who, part in self._parts.items():
            spent[part] += self._now[who] - self._before[who]
        return spent

    def _look(self) -> None:
        for part, stat in [*self._of_engine(), *self._of_server()]:
            self._parts.setdefault(stat.who, part)
            self._before.setdefault(stat.who, Cpu())
            self._now[stat.who] = stat.cpu

    def _of_engine(self) -> Iterator[tuple[str, Stat]]:
        yield from _processes([(names.DRIVER, self._engine.pid)])
        for process in self._engine.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if process.name() == "java":
                    yield from _threads(process.pid)
                    for _, stat in _processes([("", process.pid)]):
                        yield names.JVM_ALONE, replace(stat, who=(-process.pid, stat.who[1]))
                else:
                    yield from _processes([(names.process_part(" ".join(process.cmdline())), process.pid)])

    def _of_server(self) -> Iterator[tuple[str, Stat]]:
        backends = self._conn.execute(_BACKENDS).fetchall()
        yield from _processes((names.backend_part(application, kind), pid) for pid, application, kind in backends)
        yield from _processes([(names.backend_part("", "postmaster"), self._server.pid)])


def _processes(named: Iterable[tuple[str, int]]) -> Iterator[tuple[str, Stat]]:
    for part, pid in named:
        with suppress(OSError):
            yield part, Stat.parse(Path(f"/proc/{pid}/stat").read_text())


def _threads(pid: int) -> Iterator[tuple[str, Stat]]:
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):
            stat = Stat.parse(path.read_text())
            yield names.thread_part(stat.name), stat
