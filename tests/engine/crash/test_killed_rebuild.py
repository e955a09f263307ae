"""A view has its old or its new definition, whole, whenever the process that computes the new one is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.crash.drivers import Driver
from tests.engine.crash.orders import eventually
from tests.engine.crash.test_killed_views import run_until_dead
from tests.engine.crash.views import PAID_LARGE, shop, statements


@pytest.mark.timeout(600)
def test_a_rebuild_that_is_killed_in_and_after_the_switch(database_url: str, tmp_path: Path) -> None:
    check_rebuild_after_kills(database_url, tmp_path, [["killed in the switch"]])


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_rebuild_that_is_killed_at_any_step(database_url: str, tmp_path: Path) -> None:
    faults: list[list[Any]] = [["killed after commit", 1], ["killed before the switch"], ["killed in the switch"]]
    check_rebuild_after_kills(database_url, tmp_path, faults)


def check_rebuild_after_kills(database_url: str, tmp_path: Path, faults: list[list[Any]]) -> None:
    changed = tmp_path / "changed.sql"
    changed.write_text(statements(PAID_LARGE))
    with shop(database_url, tmp_path, seed=11) as pushed:
        pushed.push(100)
        with Driver(database_url, tmp_path / "old.log", file=str(pushed.file)) as old:
            pushed.check()
            for number, fault in enumerate(faults):
                log = tmp_path / f"{number}.log"
                with Driver(database_url, log, fault=fault, file=str(changed), rebuild=True) as driver:
                    run_until_dead(driver, pushed)
                # The old version is whole, and its driver goes on.
                pushed.push(10)
                pushed.check()
                assert pushed.queries() == ["best", "paid", "paid:rebuild"]
            fault = ["killed after the switch"]
            with Driver(database_url, tmp_path / "last.log", fault=fault, file=str(changed), rebuild=True) as driver:
                run_until_dead(driver, pushed)
            eventually(lambda: old.process.poll() is not None, what="the end of the old driver")
            assert "another version of it was started" in old.text()
        with Driver(database_url, tmp_path / "new.log", file=str(changed), rebuild=True):
            pushed.push(20)
            pushed.check(PAID_LARGE)
            assert pushed.queries() == ["best", "paid"]


@pytest.mark.timeout(600)
def test_a_rebuild_that_hangs_is_overtaken_by_the_old_driver(database_url: str, tmp_path: Path) -> None:
    changed = tmp_path / "changed.sql"
    changed.write_text(statements(PAID_LARGE))
    with shop(database_url, tmp_path, seed=12) as pushed:
        pushed.push(100)
        fault = ["paused before the switch"]
        with Driver(database_url, tmp_path / "old.log", file=str(pushed.file)):
            pushed.check()
            with Driver(database_url, tmp_path / "new.log", fault=fault, file=str(changed), rebuild=True) as driver:
                driver.wait_until_paused()
                # Its lease ends, and the old driver, which stood by, counts more events.
                pushed.push(30)
                pushed.check()
                driver.resume()
                pushed.push(30)
                pushed.check(PAID_LARGE)
