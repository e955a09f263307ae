"""A task that Spark runs more than once is counted once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.crash.drivers import Driver
from tests.engine.crash.orders import Orders, ask, eventually, rows_of


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("differs", [False, True], ids=["with the same report", "with another report"])
def test_a_task_that_fails_after_its_report_is_counted_once(database_url: str, tmp_path: Path, differs: bool) -> None:
    fault = ["tasks run twice", str(tmp_path), differs]
    # Spark tries a task up to four times here, as it does on a cluster.
    with (
        Orders(database_url) as orders,
        Driver(database_url, tmp_path / "driver.log", fault=fault, master="local[2, 4]") as driver,
    ):
        orders.push(400)  # a small cycle
        eventually(lambda: orders.counted() >= orders.count, what=driver.text())
        orders.push(25_000)  # and one of several tasks
        orders.check()
        assert {path.name for path in tmp_path.glob("*-?")} == {"small-0", "small-1", "large-0", "large-1"}, (
            driver.text()
        )
        twice = "SELECT FROM penstock.reports GROUP BY fence, cycle, stage, task HAVING count(*) > 1"
        assert rows_of(database_url, twice)
        failed = ask(database_url, "SELECT count(*) FROM penstock.cycles WHERE error IS NOT NULL")
        assert (failed > 0) == differs, driver.text()
