"""Polls the rows of the probe keys on its own connection.

The ``seq`` of a row is the highest event number counted in it. The events of a key are counted in order, so an event is
visible from the first poll whose ``seq`` reaches its number. The time is taken when the result arrives, so latencies
are overstated by up to the polling interval and one SELECT. They are understated, by a few milliseconds, only if two
concurrent pushes were stored in reverse order.
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
    """Polls inside ``with``. ``seen`` lists the changes: time, key, highest event number."""

    def __init__(self, url: str, query: str) -> None:
        super().__init__(daemon=True)
        self.seen: list[tuple[float, str, int]] = []
        self.query_ms: list[float] = []
        self._query = query.encode()
        self._conn = psycopg.connect(url, autocommit=True, application_name=OBSERVER)
        self._backend = psutil.Process(self._conn.info.backend_pid)
        self._done = threading.Event()
        self._failure: Exception | None = None

    def run(self) -> None:
        """Poll until stopped, and keep the error if it fails."""
        try:
            self._poll()
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

    def _poll(self) -> None:
        highest: dict[str, int] = {}
        probes = list(PROBES)
        while not self._done.is_set():
            began = time.monotonic()
            try:
                rows = self._conn.execute(self._query, (probes,)).fetchall()
            except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
                rows = []  # the view does not exist yet
            received = time.monotonic()
            for key, seq in rows:
                if seq is not None and seq > highest.get(key, -1):
                    highest[key] = seq
                    self.seen.append((received, key, seq))
            self.query_ms.append((received - began) * 1000)
            self._done.wait(max(POLL_MS / 1000 - (received - began), 0))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self.join()
        self._conn.close()
