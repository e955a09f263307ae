"""The server process of a data directory: what it says of itself, whether it lives, whether it answers."""

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

from penstock.db.embedded.secure_files import cannot_use, is_private

USER = "penstock"
DATABASE = "penstock"
PORT = 5432
SOCKET = f".s.PGSQL.{PORT}"

# A socket's whole path must fit into sockaddr_un: 104 bytes on macOS, 108 on Linux.
_LONGEST_SOCKET_PATH = 100


@dataclass(frozen=True, slots=True)
class PidFile:
    """What ``postmaster.pid`` says, as far as it is written."""

    pid: int | None = None
    socket_dir: Path | None = None
    phase: str = ""

    @classmethod
    def read(cls, path: Path) -> PidFile:
        """Read it in one go: the server rewrites it as it moves on. Without a file nothing is known."""
        try:
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise cannot_use(error, path) from None
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

    def says(self) -> PidFile:
        """What it says of itself, or said before it was killed."""
        return PidFile.read(self.pid_file)

    def runs(self) -> bool:
        """Whether the process that ``postmaster.pid`` names lives and is the server of this directory."""
        return self._is_server(self.says().pid)

    def ping(self) -> Ping:
        """Ask the server whether it takes connections (OK) or not now (REJECT)."""
        says = self.says()
        if says.pid is None or says.socket_dir is None:
            return Ping.NO_RESPONSE
        # Asked over the socket, a server that recovers would fill its log with refusals.
        if says.phase in ("starting", "stopping") and self._is_server(says.pid):
            return Ping.REJECT
        if not self._owns(says.socket_dir):
            return Ping.NO_RESPONSE
        return Ping(PGconn.ping(conninfo(says.socket_dir, connect_timeout=5).encode()))

    def has_socket(self) -> bool:
        """Whether its socket is there, in a place where nobody else can have put it."""
        place = self.says().socket_dir
        return place is not None and self._owns(place) and (place / SOCKET).exists()

    def _owns(self, socket_dir: Path) -> bool:
        # After a crash and a cleaning of /tmp, somebody else may wait for us in a directory of that name.
        return is_private(socket_dir, self.data.stat().st_uid)

    def _is_server(self, pid: int | None) -> bool:
        if pid is None:
            return False
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            if alive(process) and process.name().startswith("postgres"):
                return str(self.data) in process.cmdline() or process.cwd() == str(self.data)
        return False


def alive(process: psutil.Process) -> bool:
    """Whether the process is still at work, and not just waiting for its parent to notice that it ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def choose_socket_dir(directory: Path) -> Path:
    """Return where the socket of the server in ``directory`` goes: inside of it if libpq can name that."""
    short = f"penstock-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]}"
    candidates = [directory / "run", Path(tempfile.gettempdir()) / short, Path("/tmp") / short]  # noqa: S108
    return next(path for path in candidates if _can_be_named(path))


def conninfo(socket_dir: Path, **options: int) -> str:
    """Return how to connect to the database that every server has, for looking after it."""
    # The empty hostaddr keeps PGHOSTADDR from sending us elsewhere.
    where = make_conninfo("", host=str(socket_dir), hostaddr="", port=PORT)
    return make_conninfo(where, user=USER, dbname="postgres", **options)


def url(socket_dir: Path) -> str:
    """Return the URI of the database ``penstock``."""
    host = quote(os.fsencode(socket_dir), safe="")
    return f"postgresql://{USER}@/{DATABASE}?host={host}&hostaddr=&port={PORT}"


def _can_be_named(socket_dir: Path) -> bool:
    # A comma would make it two hosts.
    return "," not in str(socket_dir) and len(os.fsencode(socket_dir / SOCKET)) <= _LONGEST_SOCKET_PATH
