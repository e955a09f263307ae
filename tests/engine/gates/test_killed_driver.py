"""A driver of a gated stream is killed: the limit holds, and every event is released once and in order."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock import SyncPenstock
from tests.engine.crash.orders import eventually
from tests.engine.gates.gated_calls import CAPACITY, TENANTS, check, prepare

ROOT = Path(__file__).parents[3]


@contextmanager
def driver(url: str, log: Path) -> Iterator[int]:
    """Run a driver and its JVM as a process group, and kill it with SIGKILL at the end of the block."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.engine.gates.gated_driver", url],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def kill_repeatedly(url: str, log: Path, kills: int, each: int, chance: random.Random) -> None:
    with SyncPenstock(url) as client:
        prepare(client, each)
        for _ in range(kills):
            before = check(client)
            with driver(url, log):
                eventually(lambda before=before: check(client) > before, what=log.read_text()[-2000:])  # type: ignore[misc]
                time.sleep(chance.random())  # a random moment of a release
        with driver(url, log):
            eventually(lambda: check(client) == TENANTS * each, timeout=600, what=log.read_text()[-2000:])
        check(client, each)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_driver_exceeds_no_limit_and_loses_nothing(database_url: str, tmp_path: Path) -> None:
    kill_repeatedly(database_url, tmp_path / "driver.log", 1, 120, random.Random(2))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_twenty_kills_exceed_no_limit_and_lose_nothing(database_url: str, tmp_path: Path) -> None:
    kill_repeatedly(database_url, tmp_path / "driver.log", 20, 1200, random.Random(20))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_suspended_driver_exceeds_no_limit_while_another_takes_over(database_url: str, tmp_path: Path) -> None:
    each, logs = 500, [tmp_path / "first.log", tmp_path / "second.log"]
    with SyncPenstock(database_url) as client:
        prepare(client, each)
        with driver(database_url, logs[0]) as first:
            eventually(lambda: check(client) > 0, timeout=200, what="the first driver's releases")
            with driver(database_url, logs[1]):
                for _ in range(2):
                    os.killpg(first, signal.SIGSTOP)
                    before = check(client)
                    eventually(
                        lambda before=before: check(client) > before + TENANTS * CAPACITY,  # type: ignore[misc]
                        timeout=200,
                        what="releases of the driver that took over",
                    )
                    os.killpg(first, signal.SIGCONT)
                eventually(lambda: check(client) == TENANTS * each, timeout=200, what=logs[1].read_text()[-2000:])
        check(client, each)
