"""The supervisor and its workers."""

from __future__ import annotations

import os
import subprocess
import sys

import httpx
import psutil
import pytest

from tests.conditions import eventually
from tests.server.server_process import RunningServer, run_server

pytestmark = pytest.mark.slow


def workers(running: RunningServer) -> list[psutil.Process]:
    return psutil.Process(running.process.pid).children()


def test_killed_worker_is_replaced(shared_url: str) -> None:
    with run_server(shared_url, ["--workers", "2"]) as running:
        eventually(lambda: len(workers(running)) == 2)
        killed, kept = workers(running)
        killed.kill()
        eventually(lambda: len(workers(running)) == 2 and killed.pid not in {each.pid for each in workers(running)})
        assert kept.is_running()
        for _ in range(10):
            assert httpx.get(f"{running.url}/readyz").status_code == 200
        running.process.terminate()
        assert running.process.wait(20) == 0


def test_workers_stop_when_the_supervisor_dies(shared_url: str) -> None:
    with run_server(shared_url, ["--workers", "2"]) as running:
        eventually(lambda: len(workers(running)) == 2)
        orphans = workers(running)
        running.process.kill()
        gone, alive = psutil.wait_procs(orphans, timeout=20)
        assert len(gone) == 2
        assert not alive


#: Sends SIGTERM to the supervisor at the moment at which it has started its first worker.
_STOP_AFTER_FORK = """
import os, signal
fork = os.fork
def fork_and_stop():
    os.fork, pid = fork, fork()
    if pid:
        os.kill(os.getpid(), signal.SIGTERM)
    return pid
os.fork = fork_and_stop
from penstock.cli import main
main()
"""


def test_stop_during_start_stops_all_workers(shared_url: str) -> None:
    command = [sys.executable, "-c", _STOP_AFTER_FORK, "serve", "--port", "0", "--workers", "3"]
    environ = {**os.environ, "PENSTOCK_DATABASE_URL": shared_url}
    # A worker that missed the signal would be killed after 35 seconds.
    ended = subprocess.run(command, env=environ, capture_output=True, timeout=20, check=False)
    assert ended.returncode == 0, ended.stderr
