"""The poller: a connection of its own that asks every few milliseconds how far the probes' rows are.

A row's ``seq`` is the highest number that was counted in it. The events of a key are counted in their order, so an
event is visible from the first answer whose ``seq`` reaches its number. The moment is taken when the answer is there:
what is reported is too long by up to the pause between two questions and the time of one. It is too short only
where two pushes that were under way at once changed places, and then by the few milliseconds between them.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

import psutil
import psycopg

from benchmarks.freshness.plan import OBSERVER, POLL_MS, PROBES


class Poller(threading.Thread):
    """Polls inside ``with``. ``seen`` collects the changes: time, key, highest number."""

    def __init__(self, url: str, query: str) -> None:
        super().__init__(daemon=True)
        self.seen: list[tuple[float, str, int]] = []
        self.asked_ms: list[float] = []
        self._query = query.encode()
        self._conn = psycopg.connect(url, autocommit=True, application_name=OBSERVER)
        self._backend = psutil.Process(self._conn.info.backend_pid)
        self._done = threading.Event()
        self._failure: Exception | None = None

    def run(self) -> None:
        """Ask until told to stop."""
        try:
            self._ask_on()
        except Exception as error:
            self._failure = error

    def cpu_seconds(self) -> float:
        """Return the CPU time that PostgreSQL has spent on its polls."""
        times = self._backend.cpu_times()
        return float(times.user + times.system)

    def check(self) -> None:
        """Raise the error of the poller, if it failed."""
        if self._failure is not None:
            raise self._failure

    def _ask_on(self) -> None:
        highest: dict[str, int] = {}
        probes = list(PROBES)
        while not self._done.is_set():
            began = time.monotonic()
            try:
                rows = self._conn.execute(self._query, (probes,)).fetchall()
            except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
                rows = []  # the query has not made its view yet
            answered = time.monotonic()
            for key, seq in rows:
                if seq is not None and seq > highest.get(key, -1):
                    highest[key] = seq
                    self.seen.append((answered, key, seq))
            self.asked_ms.append((answered - began) * 1000)
            self._done.wait(max(POLL_MS / 1000 - (answered - began), 0))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self.join()
        self._conn.close()
