"""Samples of a running query: the rows after a commit, and the positions of that commit."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from benchmarks.nexmark import queues
from benchmarks.nexmark.answers import Positions

#: Rows are read after the first commit beyond each of these shares of the events.
_SHARES = (0.1, 0.35, 0.6, 0.85)
_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class CommitSample:
    """The rows of a view, or the number of events of a queue, at the positions of a commit."""

    positions: Positions
    rows: Path | None = None
    count: int | None = None


@dataclass(slots=True)
class CommitSampler:
    """Reads samples in a thread. Each sample is one snapshot of the database."""

    url: str
    query: str
    events: int
    directory: Path
    #: The columns of the view. None: the result is a queue.
    columns: list[str] | None
    queue: str | None
    samples: list[CommitSample] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Read samples until :meth:`stop`."""
        with psycopg.connect(self.url) as conn:
            conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            conn.read_only = True
            while not self._stopping.is_set() and len(self.samples) < len(_SHARES):
                with conn.transaction():
                    self._read(conn)
                time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        self._stopping.set()

    def _read(self, conn: psycopg.Connection[tuple[object, ...]]) -> None:
        positions = queues.positions(conn, self.query)
        read = sum(positions.values())
        if not _SHARES[len(self.samples)] * self.events <= read < self.events:
            return
        if self.columns is None:
            count = queues.appended(conn, self.queue or self.query)
            self.samples.append(CommitSample(positions, count=count))
            return
        path = self.directory / f"{self.query}-{len(self.samples)}.csv"
        if queues.copy_view(conn, self.query, self.columns, path):
            self.samples.append(CommitSample(positions, path))
