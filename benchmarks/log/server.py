"""The PostgreSQL server of a benchmark: embedded, in a temporary directory, durable."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psutil
import psycopg

from benchmarks.log.machine import OtherProcesses
from penstock.db.embedded.server import EmbeddedPostgres, status

_SETTINGS = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_level",
    "shared_buffers",
    "max_wal_size",
    "checkpoint_timeout",
    "autovacuum",
    "jit",
)


class Server:
    """A running server."""

    def __init__(self, url: str, pid: int) -> None:
        self.url, self.pid = url, pid
        self._postmaster = psutil.Process(pid)

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL."""
        with psycopg.connect(self.url, autocommit=True) as conn:
            conn.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))

    def settings(self) -> dict[str, str]:
        """Return the settings that the server reports."""
        with psycopg.connect(self.url) as conn:
            rows = {name: conn.execute(f"SHOW {name}".encode()).fetchone() for name in _SETTINGS}
        return {name: str(row[0]) for name, row in rows.items() if row is not None}

    def deadlocks(self) -> int:
        """Return the number of deadlocks in all databases."""
        with psycopg.connect(self.url) as conn:
            row = conn.execute("SELECT coalesce(sum(deadlocks), 0)::bigint FROM pg_stat_database").fetchone()
        return int(row[0]) if row is not None else 0

    def cpu_seconds(self) -> float:
        """Return the CPU time of all its processes so far, including those that have ended."""
        spent = 0.0
        for process in [self._postmaster, *self._postmaster.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                spent += times.user + times.system
                if process == self._postmaster:
                    spent += times.children_user + times.children_system
        return spent


@contextmanager
def running() -> Iterator[Server]:
    """Start a server, and remove its directory at the end."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        with EmbeddedPostgres(directory) as embedded:
            pid = status(directory).pid
            if pid is None:
                raise RuntimeError("the server has no process id")
            OtherProcesses.exclude(pid)
            yield Server(embedded.url, pid)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
