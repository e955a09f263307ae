"""A join whose driver is killed at any moment gives every pair once, and every event that is alone once."""

from __future__ import annotations

import random
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.engine.crash.drivers import Driver
from tests.engine.crash.pairs import Sides


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_a_join_that_is_killed_around_its_commits_gives_each_pair_once(database_url: str, tmp_path: Path) -> None:
    chance = random.Random(5)
    kinds = ["killed after commit", "killed before commit"]
    faults: list[list[Any]] = [[kinds[i % 2], chance.randint(1, 4)] for i in range(8)]
    with Sides(database_url, seed=5) as sides:
        sides.push(100)
        for i, fault in enumerate(faults):
            with Driver(
                database_url, tmp_path / f"{i}.log", fault=fault, pipeline="pairs", max_events_per_cycle=60
            ) as d:
                while d.process.poll() is None:
                    sides.push(40)
                    with suppress(subprocess.TimeoutExpired):
                        d.process.wait(1)
                d.wait_until_dead()
        with Driver(database_url, tmp_path / "last.log", pipeline="pairs"):
            sides.check()
