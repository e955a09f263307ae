"""The postmaster process of a data directory: its pid file, whether it runs and whether it accepts connections."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psutil
from psycopg.conninfo import make_conninfo
from psycopg.pq import PGconn, Ping

from penstock.db.embedded.secure_files import is_private, unusable_path

USER = "penstock"
DATABASE = "penstock"
PORT = 5432
SOCKET = f".s.PGSQL.{PORT}"

# The path of a socket must fit into sockaddr_un: 104 bytes on macOS, 108 on Linux.
_MAX_SOCKET_PATH_BYTES = 100


@dataclass(frozen=True, slots=True)
class PidFile:
    """The content of ``postmaster.pid``, as far as the server has written it."""

    pid: int | None = None
    socket_dir: Path | None = None
    phase: str = ""

    @classmethod
    def read(cls, path: Path) -> PidFile:
        """Read the file at once, because the server rewrites it. A missing file gives an empty result."""
        try:
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise unusable_path(error, path) from None
        lines = [line.strip() for line in text.splitlines()] + [""] * 8
        pid: int | None = None
        with suppress(ValueError):
            pid = abs(int(lines[0])) or None  # negative: a single-user server
        return cls(pid, Path(lines[4]) if lines[4] else None, lines[7])


class Postmaster:
    """The server of the data directory ``data``, if there is one."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.pid_file = data / "postmaster.pid"

    def read_pid_file(self) -> PidFile:
        """Read the pid file, which may be that of a killed server."""
        return PidFile.read(self.pid_file)

    def is_running(self) -> bool:
        """Return whether the process of ``postmaster.pid`` is alive and is the server of this directory."""
        return self._is_server(self.read_pid_file().pid)

    def ping(self) -> Ping:
        """Return whether the server accepts connections (OK), or starts or stops (REJECT)."""
        file = self.read_pid_file()
        if file.pid is None or file.socket_dir is None:
            return Ping.NO_RESPONSE
        # Every connection attempt would add a message to the log of a server that recovers.
        if file.phase in ("starting", "stopping") and self._is_server(file.pid):
            return Ping.REJECT
        if not self._owns(file.socket_dir):
            return Ping.NO_RESPONSE
        return Ping(PGconn.ping(admin_conninfo(file.socket_dir, connect_timeout=5).encode()))

    def has_socket(self) -> bool:
        """Return whether its socket exists, in a directory that no other user can write to."""
        socket_dir = self.read_pid_file().socket_dir
        return socket_dir is not None and self._owns(socket_dir) and (socket_dir / SOCKET).exists()

    def _owns(self, socket_dir: Path) -> bool:
        # After a crash and a cleanup of /tmp, another user may have created a directory with this name.
        return is_private(socket_dir, self.data.stat().st_uid)

    def _is_server(self, pid: int | None) -> bool:
        if pid is None:
            return False
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            if is_alive(process) and process.name().startswith("postgres"):
                return str(self.data) in process.cmdline() or process.cwd() == str(self.data)
        return False


def is_alive(process: psutil.Process) -> bool:
    """Return whether the process runs and is not a zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def choose_socket_dir(directory: Path) -> Path:
    """Return the directory of the socket: inside ``directory`` if libpq accepts the path."""
    short = f"penstock-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]}"
    candidates = [directory / "run", Path(tempfile.gettempdir()) / short, Path("/tmp") / short]  # noqa: S108
    return next(path for path in candidates if _is_valid_socket_dir(path))


def admin_conninfo(socket_dir: Path, **options: int) -> str:
    """Return the connection string of the database ``postgres``, for administration."""
    # The empty hostaddr overrides PGHOSTADDR.
    server = make_conninfo("", host=str(socket_dir), hostaddr="", port=PORT)
    return make_conninfo(server, user=USER, dbname="postgres", **options)


def make_url(socket_dir: Path) -> str:
    """Return the URI of the database ``penstock``."""
    host = quote(os.fsencode(socket_dir), safe="")
    return f"postgresql://{USER}@/{DATABASE}?host={host}&hostaddr=&port={PORT}"


def _is_valid_socket_dir(socket_dir: Path) -> bool:
    # libpq reads a comma as a separator of hosts.
    return "," not in str(socket_dir) and len(os.fsencode(socket_dir / SOCKET)) <= _MAX_SOCKET_PATH_BYTES
