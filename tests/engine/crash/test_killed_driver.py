"""A driver that is killed at any moment loses nothing and counts nothing twice."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.engine.crash.drivers import Driver
from tests.engine.crash.orders import Orders, committed, eventually

#: At the two moments that matter most; `make test-long` adds any other.
SHORT: list[list[Any]] = [["killed after commit", 2], ["killed before commit", 2]]


def kill_again_and_again(url: str, directory: Path, faults: list[list[Any]], chance: random.Random) -> None:
    with Orders(url) as orders:
        orders.push(500)
        for i, fault in enumerate(faults):
            before = committed(url)
            with Driver(url, directory / f"driver-{i}.log", fault=fault) as driver, orders.pushing():
                if fault:
                    driver.wait_until_dead()
                    continue
                eventually(lambda before=before: committed(url) > before, what=driver.text())  # type: ignore[misc]
                time.sleep(chance.random())  # at any moment of the cycles that follow
                driver.kill()
        with Driver(url, directory / "last.log"):
            orders.check()


@pytest.mark.timeout(900)
def test_a_driver_that_is_killed_around_its_commit_counts_each_event_once(database_url: str, tmp_path: Path) -> None:
    kill_again_and_again(database_url, tmp_path, SHORT, random.Random(3))


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_a_driver_that_is_killed_thirty_times_counts_each_event_once(database_url: str, tmp_path: Path) -> None:
    chance = random.Random(30)
    kinds = ["killed after commit", "killed before commit"]
    faults = [[kinds[i % 2], chance.randint(1, 6)] if i < 10 else [] for i in range(30)]
    chance.shuffle(faults)
    kill_again_and_again(database_url, tmp_path, faults, chance)
