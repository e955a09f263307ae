"""One directory with a PostgreSQL: creates its data, starts and stops its server."""

from __future__ import annotations

import logging
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg.pq import Ping

from penstock.core.errors import ConfigurationError, DatabaseError, DatabaseVersionError
from penstock.core.lock_file import LockFile
from penstock.db.embedded import postmaster, watchdog
from penstock.db.embedded.os_account import Account, account_for, check_access
from penstock.db.embedded.postmaster import (
    DATABASE,
    PORT,
    SOCKET,
    USER,
    Postmaster,
    admin_conninfo,
    choose_socket_dir,
    is_alive,
)
from penstock.db.embedded.secure_files import check_not_shared, create_file, make_private_directory, unusable_path
from penstock.db.embedded.subprocess import run


class ServerLog:
    """Reads the end of the log for error messages, and its size as a sign of life."""

    def __init__(self, directory: Path) -> None:
        self.startup = directory / "startup.log"
        self.directory = directory / "log"

    def read_tail(self) -> str:
        """Return the last lines of the latest start."""
        startup = _read_end(self.startup)
        # The newest log belongs to this start only if the server got as far as opening it.
        return last_lines(_read_end(self._newest()) if "redirecting log output" in startup else startup)

    def size(self) -> int:
        """Return the size of the newest log, which grows with every message."""
        path = self._newest()
        return path.stat().st_size if path.exists() else 0

    def _newest(self) -> Path:
        files = [path for path in self.directory.glob("*.log") if path.is_file() and not path.is_symlink()]
        return max(files, key=lambda path: path.stat().st_mtime, default=self.startup)


def last_lines(text: str) -> str:
    """Return the last 20 lines, for an error message."""
    return "\n".join(text.splitlines()[-20:])


def _read_end(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 16_384))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


_DEFAULTS = {
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "wal_compression": "off",  # chunks are compressed already
    "jit": "off",  # compiling short statements costs more than it saves
    "fsync": "on",
    "synchronous_commit": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "log_filename": "postgresql-%a.log",
    "log_truncate_on_rotation": "on",
    "log_rotation_age": "1d",
    "log_rotation_size": "0",
}


def write_config(directory: Path, *, data: Path, socket_dir: Path, log_dir: Path, options: Mapping[str, str]) -> None:
    """Write ``penstock.conf``. ``local.conf`` overrides all settings but those of the socket and the log."""
    quoted_socket_dir = str(socket_dir).replace('"', '""')
    fixed = {
        "listen_addresses": "",
        "port": str(PORT),
        "unix_socket_directories": f'"{quoted_socket_dir}"',
        "unix_socket_permissions": "0700",
        "logging_collector": "on",
        "log_directory": str(log_dir),
    }
    lines = [
        "# Written by Penstock before each start. Put your own settings into local.conf.",
        f"include '{data.name}/postgresql.conf'",
        *(f"{name} = {_quote(value)}" for name, value in {**_DEFAULTS, **options}.items()),
        "include_if_exists 'local.conf'",
        *(f"{name} = {_quote(value)}" for name, value in fixed.items()),
    ]
    with create_file(directory / "penstock.conf", 0o644) as file:
        file.write("\n".join(lines) + "\n")
    if not (local_conf := directory / "local.conf").exists():
        with create_file(local_conf, 0o644) as file:
            file.write("# Your own settings for the embedded PostgreSQL: name = 'value'\n")


def _quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


logger = logging.getLogger(__name__)


class Cluster:
    """The files and the server of one directory. Changes need the control lock."""

    def __init__(self, directory: Path, bin_dir: Path, options: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.bin_dir = bin_dir
        self.options = dict(options or {})
        self.log = ServerLog(directory)

    @property
    def major(self) -> int:
        """The major version of the programs in ``bin_dir``."""
        return _major_version(self.bin_dir)

    @property
    def data(self) -> Path:
        """The data directory of PostgreSQL."""
        return self.directory / f"pg{self.major}"

    @property
    def account(self) -> Account | None:
        """The account of the server, if it is not the user of this process."""
        return account_for(self.data)

    @property
    def postmaster(self) -> Postmaster:
        """The server's process."""
        return Postmaster(self.data)

    @property
    def url(self) -> str:
        """The URI of the database ``penstock``."""
        # The pid file of a running server has its socket. TMPDIR may differ between processes.
        return postmaster.make_url(self.postmaster.read_pid_file().socket_dir or choose_socket_dir(self.directory))

    def make_directory(self) -> None:
        """Create the directory, and refuse one that other users can write to."""
        try:
            if not self.directory.exists():
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_closed = not self.directory.stat().st_mode & stat.S_IXOTH
            # Opened to the account of the server only if it contains nothing else.
            if os.geteuid() == 0 and is_closed and not set(os.listdir(self.directory)) - {"control.lock"}:
                self.directory.chmod(0o711)
            check_not_shared(self.directory)
        except OSError as error:
            raise unusable_path(error, self.directory) from None

    def ensure_running(self, timeout: float, control: LockFile) -> None:
        """Start the server unless it runs. Create its data and its database if they are missing."""
        # A failed start terminates the server, because nobody uses it.
        with ExitStack() as undo:
            if self.postmaster.ping() is not Ping.OK:
                self._prepare(control)
                self._start(timeout, undo)
            self._create_database()
            undo.pop_all()

    def stop(self) -> None:
        """Stop the server. Closes connections and keeps committed data."""
        if not self.postmaster.is_running():
            return
        logger.info("stopping PostgreSQL in %s", self.directory)
        completed = self._run([self.bin_dir / "pg_ctl", "stop", "-D", self.data, "-m", "fast", "-w", "-t", "120"])
        if completed.returncode != 0 and self.postmaster.is_running():
            raise self._failure(f"PostgreSQL could not be stopped ({completed.stderr.strip()})")

    def _start(self, timeout: float, undo: ExitStack) -> None:
        launched: psutil.Process | None = None
        log_size = self.log.size()
        deadline = time.monotonic() + timeout
        while (ping := self.postmaster.ping()) is not Ping.OK:
            if ping is not Ping.REJECT and launched is None:
                launched = self._launch()
                if launched is not None:
                    undo.callback(_terminate, launched)
            elif launched is not None and not is_alive(launched):
                raise self._failure("PostgreSQL ended during its start")
            if (size := self.log.size()) != log_size:
                log_size, deadline = size, time.monotonic() + timeout
            if time.monotonic() > deadline:
                raise self._failure(self._describe_timeout(timeout))
            time.sleep(0.02)

    def _describe_timeout(self, timeout: float) -> str:
        if self.postmaster.is_running():
            return f"PostgreSQL is not ready and has logged nothing for {timeout:.0f} seconds"
        return (
            "a PostgreSQL that cannot be reached from here, perhaps in another container, or the children of a killed "
            f"one have used the data for {timeout:.0f} seconds: stop them first"
        )

    def _launch(self) -> psutil.Process | None:
        """Start the server process. Return None if one runs, or if children of a killed one still run."""
        if self.postmaster.is_running():
            if self.postmaster.has_socket():
                return None  # too busy to respond: wait
            self.stop()  # it is stopping, or its socket was deleted
        path = self.directory / "server.lock"
        try:
            lock = LockFile(path)
        except OSError as error:
            raise unusable_path(error, path) from None
        try:
            if not lock.try_acquire():
                return None
            self._remove_leftovers()
            return self._launch_with(lock)
        finally:
            lock.close()

    def _launch_with(self, lock: LockFile) -> psutil.Process:
        logger.info("starting PostgreSQL %s in %s", self.major, self.directory)
        config = self.directory / "penstock.conf"
        server: list[str | Path] = [self.bin_dir / "postgres", "-D", self.data, "-c", f"config_file={config}"]
        with create_file(self.log.startup, 0o600) as log:
            # The server and its children inherit the lock.
            started = self._run(_detached(server), stderr=log.fileno(), start_new_session=True, pass_fds=[lock.fd])
        # The locks belong to this user, so the watchdog runs as this user too.
        python = [sys.executable, "-I", "-S"]
        run(
            _detached([*python, watchdog.__file__, self.directory, self.postmaster.pid_file, started.stdout.strip()]),
            cwd=self.directory,
            env=_environment(),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return psutil.Process(int(started.stdout))
        except (ValueError, psutil.NoSuchProcess):
            raise self._failure("PostgreSQL ended during its start") from None

    def _remove_leftovers(self) -> None:
        # This process holds the lock of the server, so no process of the server is left. PostgreSQL would take any
        # process with the recorded pid for its postmaster, and refuse to start.
        path, pid = self.postmaster.pid_file, self.postmaster.read_pid_file().pid
        if path.exists() and (pid is None or psutil.pid_exists(pid)):
            logger.warning("removing %s, because its PostgreSQL no longer runs", path)
            path.unlink()
        for name in (SOCKET, f"{SOCKET}.lock"):
            (choose_socket_dir(self.directory) / name).unlink(missing_ok=True)

    def _create_database(self) -> None:
        socket_dir = self.postmaster.read_pid_file().socket_dir or choose_socket_dir(self.directory)
        try:
            with psycopg.connect(admin_conninfo(socket_dir, connect_timeout=30), autocommit=True) as connection:
                if not connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).fetchall():
                    connection.execute("CREATE DATABASE penstock")
        except psycopg.Error as error:
            raise self._failure(f"PostgreSQL runs, but its database cannot be created ({error})") from error

    def _prepare(self, control: LockFile) -> None:
        try:
            self._check_version()
            if self.account is not None:
                check_access(
                    self.account, self.bin_dir / "postgres", "install Penstock in a directory that it can read"
                )
                check_access(self.account, self.directory, "set PENSTOCK_DATA_DIR to a directory that it can enter")
            self._make_private_directory(socket_dir := choose_socket_dir(self.directory))
            self._make_private_directory(self.log.directory)
            if not self.data.exists():
                self._initdb(control)
            write_config(
                self.directory,
                data=self.data,
                socket_dir=socket_dir,
                log_dir=self.log.directory,
                options=self.options,
            )
        except OSError as error:
            raise unusable_path(error, self.directory) from None

    def _check_version(self) -> None:
        files = self.directory.glob("pg[0-9]*/PG_VERSION")
        versions = {file.parent: file.read_text().strip() for file in files}
        other = versions.get(self.data) or max(versions.values(), default=str(self.major))
        if other != str(self.major):
            raise DatabaseVersionError(
                f"PostgreSQL {other} created the data in {self.directory}, and this Penstock bundles PostgreSQL "
                f"{self.major}, which cannot read it: dump it with a Penstock that bundles {other} and restore it "
                "here, or set PENSTOCK_DATA_DIR to another directory"
            )

    def _initdb(self, control: LockFile) -> None:
        # Renamed when it is complete, so that an incomplete cluster is never used.
        unfinished = self.directory / "pgdata.tmp"
        if unfinished.exists():
            shutil.rmtree(unfinished)
        self._make_private_directory(unfinished)
        locale = ["--locale=C"]
        if self.major >= 17:
            locale += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        access = ["--username", USER, "--auth-local=trust", "--auth-host=reject"]
        speed = ["--no-sync"] if self.options.get("fsync") == "off" else []
        form = ["--encoding=UTF8", "--data-checksums", "--no-instructions"]
        initdb: list[str | Path] = [self.bin_dir / "initdb", "-D", unfinished]
        # initdb goes on if this process is killed. It inherits the lock, so that no other process starts before.
        lock = [control.fd]
        completed = self._run([*initdb, *form, *locale, *access, *speed], stderr=subprocess.STDOUT, pass_fds=lock)
        if completed.returncode != 0:
            output = last_lines(completed.stdout)
            raise DatabaseError(f"PostgreSQL could not create {unfinished}; the last output of initdb:\n{output}")
        unfinished.rename(self.data)
        fd = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _make_private_directory(self, path: Path) -> None:
        if self.account is not None:
            make_private_directory(path, self.account.uid, self.account.gid)
        else:
            make_private_directory(path, os.geteuid())

    def _failure(self, what: str) -> DatabaseError:
        return DatabaseError(f"{what}. Its data is in {self.directory}; the end of its log:\n{self.log.read_tail()}")

    def _run(self, command: list[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
        if self.account is not None:
            options.update(uid=self.account.uid, gid=self.account.gid)
        return run(command, cwd=self.directory, env=_environment(), umask=0o077, **options)


@cache
def _major_version(bin_dir: Path) -> int:
    try:
        completed = run([bin_dir / "postgres", "--version"])
    except OSError as error:
        raise ConfigurationError(f"no PostgreSQL can be run from {bin_dir}: {error}") from error
    if (match := re.search(r"\d+", completed.stdout)) is None:
        raise ConfigurationError(f"no PostgreSQL can be run from {bin_dir}: {completed.stderr.strip()}")
    return int(match[0])


def _terminate(server: psutil.Process) -> None:
    # Not pg_ctl, because postmaster.pid may not exist yet.
    with suppress(psutil.Error):
        server.terminate()


def _detached(command: Sequence[str | Path]) -> list[str | Path]:
    """Return a command that starts another one and prints its pid."""
    # The shell exits at once, so init becomes the parent of the process, and not one of the users of the server.
    return ["/bin/sh", "-c", '"$@" >&2 & echo $!', "sh", *command]


def _environment() -> dict[str, str]:
    # PG* variables would change the behaviour of the server, and other variables may contain secrets.
    kept = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")
    return {**{name: os.environ[name] for name in kept if name in os.environ}, "LC_ALL": "C"}
