"""Views over views lose nothing and count nothing twice when a driver, a worker or PostgreSQL is killed."""

from __future__ import annotations

import random
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.db.embedded.server import EmbeddedPostgres
from tests.engine.crash.drivers import Driver
from tests.engine.crash.test_restarted_database import kill_server, stop_immediately
from tests.engine.crash.views import Shop, shop


def run_until_dead(driver: Driver, pushed: Shop) -> None:
    while driver.process.poll() is None:
        pushed.push(10)
        with suppress(subprocess.TimeoutExpired):
            driver.process.wait(0.5)
    driver.wait_until_dead()


@pytest.mark.timeout(600)
def test_views_whose_driver_is_killed_around_its_commits(database_url: str, tmp_path: Path) -> None:
    # The commits of both views are counted together.
    faults: list[list[Any]] = [["killed after commit", 3], ["killed before commit", 4]]
    check_views_after_faults(database_url, tmp_path, faults)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_views_whose_driver_is_killed_again_and_again(database_url: str, tmp_path: Path) -> None:
    chance = random.Random(9)
    kinds = ["killed after commit", "killed before commit"]
    check_views_after_faults(database_url, tmp_path, [[kinds[i % 2], chance.randint(1, 9)] for i in range(12)])


def check_views_after_faults(url: str, directory: Path, faults: list[list[Any]]) -> None:
    with shop(url, directory, seed=3) as pushed:
        pushed.push(100)
        for number, fault in enumerate(faults):
            with Driver(url, directory / f"{number}.log", fault=fault, file=str(pushed.file)) as driver:
                run_until_dead(driver, pushed)
        with Driver(url, directory / "last.log", file=str(pushed.file)):
            pushed.check()


@pytest.mark.timeout(600)
def test_views_whose_workers_are_killed_after_they_wrote_their_state(database_url: str, tmp_path: Path) -> None:
    notes = tmp_path / "kills"
    notes.mkdir()
    fault = ["workers killed after they wrote state", str(notes)]
    with (
        shop(database_url, tmp_path, seed=5) as pushed,
        Driver(database_url, tmp_path / "log", fault=fault, file=str(pushed.file), master="local[2, 4]"),
    ):
        for count in (30, 20_000, 30):
            pushed.push(count)
            pushed.check()
        assert len(list(notes.iterdir())) == 4


@pytest.mark.long
@pytest.mark.timeout(900)
def test_views_whose_database_is_killed_in_a_cycle(data_dir: Path, tmp_path: Path) -> None:
    with (
        EmbeddedPostgres(data_dir) as server,
        shop(server.url, tmp_path, seed=7) as pushed,
        Driver(server.url, tmp_path / "log", file=str(pushed.file)),
    ):
        for end in (kill_server, stop_immediately, kill_server):
            pushed.push(50)
            pushed.wait_for_commit()
            pushed.push(50)
            end(data_dir)
            server.start()
        pushed.check()
