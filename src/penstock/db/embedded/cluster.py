"""One directory with a PostgreSQL in it: making the data, starting and stopping the server."""

from __future__ import annotations

import logging
import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

import psutil
import psycopg
from psycopg.pq import Ping

from penstock.core.errors import ConfigurationError, DatabaseError, DatabaseVersionError
from penstock.db.embedded import postmaster
from penstock.db.embedded.config import write_settings
from penstock.db.embedded.lock_file import LockFile
from penstock.db.embedded.os_account import Account, account_for, check_reach
from penstock.db.embedded.postmaster import DATABASE, SOCKET, USER, Postmaster, alive, choose_socket_dir, conninfo
from penstock.db.embedded.secure_files import cannot_use, check_not_shared, new_file, private_directory
from penstock.db.embedded.server_log import ServerLog, last_lines
from penstock.db.embedded.subprocess import run

logger = logging.getLogger(__name__)


class Cluster:
    """The files and the server of one directory. Whoever changes something holds the control lock."""

    def __init__(self, directory: Path, bin_dir: Path, options: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.bin_dir = bin_dir
        self.options = dict(options or {})
        self.log = ServerLog(directory)

    @property
    def major(self) -> int:
        """The major version of PostgreSQL that ``bin_dir`` holds."""
        return _major_version(self.bin_dir)

    @property
    def data(self) -> Path:
        """PostgreSQL's own data directory."""
        return self.directory / f"pg{self.major}"

    @property
    def account(self) -> Account | None:
        """Who runs the server, if not this process's own user."""
        return account_for(self.data)

    @property
    def postmaster(self) -> Postmaster:
        """The server's process."""
        return Postmaster(self.data)

    @property
    def url(self) -> str:
        """The URI of the database ``penstock``."""
        # A running server says itself where its socket is: TMPDIR may differ from one process to the next.
        return postmaster.url(self.postmaster.says().socket_dir or choose_socket_dir(self.directory))

    def make_directory(self) -> None:
        """Make the directory if it is not there, and refuse one that is not for us alone to fill."""
        try:
            if not self.directory.exists():
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            closed = not self.directory.stat().st_mode & stat.S_IXOTH
            # Only what is plainly ours is opened to the server's account.
            if os.geteuid() == 0 and closed and not set(os.listdir(self.directory)) - {"control.lock"}:
                self.directory.chmod(0o711)
            check_not_shared(self.directory)
        except OSError as error:
            raise cannot_use(error, self.directory) from None

    def ensure_running(self, timeout: float, control: LockFile) -> None:
        """Start the server unless it runs, making its data and its database where missing."""
        # A start that fails leaves no server behind that nobody uses.
        with ExitStack() as undo:
            if self.postmaster.ping() is not Ping.OK:
                self._prepare(control)
                self._start(timeout, undo)
            self._create_database()
            undo.pop_all()

    def stop(self) -> None:
        """Stop the server; what is committed is kept, connections are closed."""
        if not self.postmaster.runs():
            return
        logger.info("stopping PostgreSQL in %s", self.directory)
        done = self._run([self.bin_dir / "pg_ctl", "stop", "-D", self.data, "-m", "fast", "-w", "-t", "120"])
        if done.returncode != 0 and self.postmaster.runs():
            raise self._failure(f"PostgreSQL could not be stopped ({done.stderr.strip()})")

    def _start(self, timeout: float, undo: ExitStack) -> None:
        launched: psutil.Process | None = None
        heard = self.log.size()
        deadline = time.monotonic() + timeout
        while (answer := self.postmaster.ping()) is not Ping.OK:
            if answer is not Ping.REJECT and launched is None:
                launched = self._launch()
                if launched is not None:
                    undo.callback(_end, launched)
            elif launched is not None and not alive(launched):
                raise self._failure("PostgreSQL ended while it was starting")
            if (size := self.log.size()) != heard:
                heard, deadline = size, time.monotonic() + timeout
            if time.monotonic() > deadline:
                raise self._failure(self._why_not_ready(timeout))
            time.sleep(0.02)

    def _why_not_ready(self, timeout: float) -> str:
        if self.postmaster.runs():
            return f"PostgreSQL is not ready and said nothing for {timeout:.0f} seconds"
        return (
            "a PostgreSQL that cannot be reached from here, in another container perhaps, or what a killed one left "
            f"at work has had the data for {timeout:.0f} seconds: stop it first"
        )

    def _launch(self) -> psutil.Process | None:
        """Start the server's process, or return None while there is one already or something left of it."""
        if self.postmaster.runs():
            if self.postmaster.has_socket():
                return None  # too busy to answer: wait
            self.stop()  # it is about to end, or somebody deleted its socket
        lock = LockFile(self.directory / "server.lock")
        try:
            if not lock.try_alone():
                return None
            self._remove_leftovers()
            return self._launch_with(lock)
        finally:
            lock.close()

    def _launch_with(self, lock: LockFile) -> psutil.Process:
        logger.info("starting PostgreSQL %s in %s", self.major, self.directory)
        config = self.directory / "penstock.conf"
        server: list[str | Path] = [self.bin_dir / "postgres", "-D", self.data, "-c", f"config_file={config}"]
        with new_file(self.log.startup, 0o600) as log:
            # The shell ends at once and leaves the server to init: it is the child of none of its users. The lock is
            # handed on to the server and its children, wherever and under whatever number they run.
            shell: list[str | Path] = ["/bin/sh", "-c", '"$@" >&2 & echo $!', "sh", *server]
            started = self._run(shell, stderr=log.fileno(), start_new_session=True, pass_fds=[lock.fd])
        try:
            return psutil.Process(int(started.stdout))
        except (ValueError, psutil.NoSuchProcess):
            raise self._failure("PostgreSQL ended while it was starting") from None

    def _remove_leftovers(self) -> None:
        # We have the server's lock, so nothing of it is left. PostgreSQL would take any live process with the
        # recorded number for itself, and refuse for as long as that stranger lives.
        pid_file, pid = self.postmaster.pid_file, self.postmaster.says().pid
        if pid_file.exists() and (pid is None or psutil.pid_exists(pid)):
            logger.warning("removing %s: the PostgreSQL that wrote it is gone", pid_file)
            pid_file.unlink()
        for name in (SOCKET, f"{SOCKET}.lock"):
            (choose_socket_dir(self.directory) / name).unlink(missing_ok=True)

    def _create_database(self) -> None:
        socket_dir = self.postmaster.says().socket_dir or choose_socket_dir(self.directory)
        try:
            with psycopg.connect(conninfo(socket_dir, connect_timeout=30), autocommit=True) as connection:
                if not connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).fetchall():
                    connection.execute("CREATE DATABASE penstock")
        except psycopg.Error as error:
            raise self._failure(f"PostgreSQL runs, but its database cannot be made ({error})") from error

    def _prepare(self, control: LockFile) -> None:
        try:
            self._check_version()
            if self.account is not None:
                check_reach(self.account, self.bin_dir / "postgres", "install Penstock where it can be read")
                check_reach(self.account, self.directory, "set PENSTOCK_DATA_DIR to one that it can enter")
            self._private_directory(socket_dir := choose_socket_dir(self.directory))
            self._private_directory(self.log.directory)
            if not self.data.exists():
                self._initdb(control)
            write_settings(
                self.directory,
                data=self.data,
                socket_dir=socket_dir,
                log_dir=self.log.directory,
                options=self.options,
            )
        except OSError as error:
            raise cannot_use(error, self.directory) from None

    def _check_version(self) -> None:
        files = self.directory.glob("pg[0-9]*/PG_VERSION")
        made_by = {file.parent: file.read_text().strip() for file in files}
        other = made_by.get(self.data) or max(made_by.values(), default=str(self.major))
        if other != str(self.major):
            raise DatabaseVersionError(
                f"the data in {self.directory} was made by PostgreSQL {other}, and this Penstock brings "
                f"PostgreSQL {self.major}, which cannot read it: dump it with a Penstock that brings {other} "
                "and restore the dump here, or set PENSTOCK_DATA_DIR to another directory"
            )

    def _initdb(self, control: LockFile) -> None:
        # Under another name until it is whole, so that a half-made cluster is never taken for one.
        unfinished = self.directory / "pgdata.tmp"
        if unfinished.exists():
            shutil.rmtree(unfinished)
        self._private_directory(unfinished)
        locale = ["--locale=C"]
        if self.major >= 17:
            locale += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        access = ["--username", USER, "--auth-local=trust", "--auth-host=reject"]
        speed = ["--no-sync"] if self.options.get("fsync") == "off" else []
        form = ["--encoding=UTF8", "--data-checksums", "--no-instructions"]
        initdb: list[str | Path] = [self.bin_dir / "initdb", "-D", unfinished]
        # It goes on if we are killed, so it gets a share in the lock: nobody else begins before it ends.
        lock = [control.fd]
        done = self._run([*initdb, *form, *locale, *access, *speed], stderr=subprocess.STDOUT, pass_fds=lock)
        if done.returncode != 0:
            words = last_lines(done.stdout)
            raise DatabaseError(f"PostgreSQL could not make {unfinished}; initdb's last words:\n{words}")
        unfinished.rename(self.data)
        fd = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _private_directory(self, path: Path) -> None:
        if self.account is not None:
            private_directory(path, self.account.uid, self.account.gid)
        else:
            private_directory(path, os.geteuid())

    def _failure(self, what: str) -> DatabaseError:
        return DatabaseError(f"{what}. Its data is in {self.directory}; its last words:\n{self.log.tail()}")

    def _run(
        self,
        command: list[str | Path],
        *,
        stderr: int = subprocess.PIPE,
        start_new_session: bool = False,
        pass_fds: Sequence[int] = (),
    ) -> subprocess.CompletedProcess[str]:
        return run(
            command,
            stderr=stderr,
            cwd=self.directory,
            env=_environment(),
            umask=0o077,
            start_new_session=start_new_session,
            pass_fds=pass_fds,
            uid=self.account.uid if self.account else None,
            gid=self.account.gid if self.account else None,
        )


@cache
def _major_version(bin_dir: Path) -> int:
    try:
        done = run([bin_dir / "postgres", "--version"])
    except OSError as error:
        raise ConfigurationError(f"no PostgreSQL can be run from {bin_dir}: {error}") from error
    if (match := re.search(r"\d+", done.stdout)) is None:
        raise ConfigurationError(f"no PostgreSQL can be run from {bin_dir}: {done.stderr.strip()}")
    return int(match[0])


def _end(server: psutil.Process) -> None:
    # It may be too early for pg_ctl, which looks into postmaster.pid.
    with suppress(psutil.Error):
        server.terminate()


def _environment() -> dict[str, str]:
    # PG* variables would change what the server does, and secrets of ours are not its business.
    kept = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")
    return {**{name: os.environ[name] for name in kept if name in os.environ}, "LC_ALL": "C"}
