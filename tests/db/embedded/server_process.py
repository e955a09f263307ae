"""Processes that use an embedded PostgreSQL, and its own process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import psycopg

from penstock.db.embedded import server as embedded
from penstock.db.embedded.server import EmbeddedPostgres

USER_PROGRAM = """
import sys
from pathlib import Path
from penstock.db.embedded.server import EmbeddedPostgres

server = EmbeddedPostgres(Path(sys.argv[1]))
server.start()
print("started", flush=True)
for line in sys.stdin:
    if line == "release\\n":
        server.release()
    print("done", flush=True)
"""


class User:
    """Another process that uses the server of a directory."""

    def __init__(self, data_dir: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER_PROGRAM, str(data_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_started(self) -> None:
        self._expect("started")

    def release(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("release\n")
        self.process.stdin.flush()
        self._expect("done")

    def leave(self) -> None:
        """Exit normally, so that atexit handlers run."""
        self.process.communicate()
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _expect(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == word


def running_pid(data_dir: Path) -> int:
    pid = embedded.status(data_dir).pid
    assert pid is not None
    return pid


def kill_server(data_dir: Path) -> None:
    process = psutil.Process(running_pid(data_dir))
    process.kill()
    while is_alive(process):
        time.sleep(0.01)


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def ask(server: EmbeddedPostgres, question: str) -> object:
    with psycopg.connect(server.url, autocommit=True) as connection:
        row = connection.execute(question.encode()).fetchone()
        return row[0] if row else None


def store_row(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE stored AS SELECT 42 AS answer")


def foreign_process(home: Path) -> subprocess.Popen[bytes]:
    """Start an unrelated process of the account of the server. PostgreSQL takes it for its own postmaster."""
    owner = (home / "pg18").stat()
    root = os.geteuid() == 0
    return subprocess.Popen(["sleep", "600"], user=owner.st_uid if root else None)
