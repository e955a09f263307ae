"""`penstock run` and `spark-submit` on a standalone cluster: executors lost, drivers moved, unchanged arguments."""

from __future__ import annotations

import re
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest
from psycopg.conninfo import make_conninfo

from tests.engine.crash.machines import PIPELINE, PROGRAM, Machine, penstock_run, spark_submit
from tests.engine.crash.orders import Orders, committed, eventually, fence
from tests.engine.crash.spark_event_log import PASSWORD, EventLog, contains_password
from tests.engine.spark_cluster import SparkCluster

WARMING, WARM = (re.compile(f'"state": ?"{state}"') for state in ("warming up", "standby"))


@pytest.mark.timeout(300)
def test_a_file_of_streams_runs_on_a_cluster_and_the_password_shows_nowhere(
    database_url: str, standalone_cluster: SparkCluster, tmp_path: Path
) -> None:
    cluster, machine = standalone_cluster, Machine(tmp_path / "a")
    events = EventLog(machine.directory / "events")
    machine.write("app.py", PIPELINE)
    secret = make_conninfo(database_url, password=PASSWORD)
    with (
        Orders(database_url) as orders,
        machine.running(*penstock_run(cluster.url, *events.options()), PENSTOCK_DATABASE_URL=secret) as driver,
    ):
        orders.push(500)
        orders.push(15_000)  # more than one task
        orders.check()
        assert cluster.executors(0)
        assert cluster.executors(1)
        assert driver.terminate() == 0, driver.text()
    # As they end, they remove what they had for themselves.
    eventually(lambda: not cluster.executors(0) and not cluster.executors(1), what="the executors have ended")
    written = [driver.log, *cluster.files(), *eventually(events.files, what="the log of events is whole")]
    assert len(written) > 7
    assert not [path for path in written if contains_password(path)]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_driver_goes_on_in_another_place_and_by_another_command(
    database_url: str, standalone_cluster: SparkCluster, tmp_path: Path
) -> None:
    url, cluster = database_url, standalone_cluster
    submit = spark_submit(cluster.url)
    run = penstock_run(cluster.url)
    with Orders(url) as orders:
        for place, text, command in (("a", PIPELINE, run), ("b", PIPELINE, run), ("c", PROGRAM, submit)):
            machine = Machine(tmp_path / place)
            machine.write("app.py", text)
            with machine.running(*command, PENSTOCK_DATABASE_URL=url) as driver:
                orders.push(500)
                before = committed(url)
                eventually(lambda before=before: committed(url) > before, timeout=600, what=driver.text())  # type: ignore[misc]
                with orders.pushing(1000):
                    # Others take their place on the same worker.
                    for executor in eventually(lambda: cluster.executors(0), what="an executor to kill"):
                        with suppress(psutil.NoSuchProcess):
                            executor.kill()
                    before = committed(url)
                    eventually(lambda before=before: committed(url) > before, timeout=600, what=driver.text())  # type: ignore[misc]
                if place == "c":
                    orders.check()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_standby_on_another_machine_takes_over_with_executors_of_its_own(
    database_url: str, standalone_cluster: SparkCluster, tmp_path: Path
) -> None:
    url = database_url
    # Without a limit the first driver takes every core, and the second has none to be warm with.
    command = penstock_run(standalone_cluster.url, "--conf", "spark.cores.max=1", "--json", "--report", "0.2")
    here, there = Machine(tmp_path / "here"), Machine(tmp_path / "there")
    for machine in (here, there):
        machine.write("app.py", PIPELINE)
    with Orders(url) as orders, ExitStack() as second_driver:
        with here.running(*command, PENSTOCK_DATABASE_URL=url) as first:
            orders.push(500)
            eventually(lambda: committed(url) >= 1, timeout=600, what=first.text())
            second = second_driver.enter_context(there.running(*command, PENSTOCK_DATABASE_URL=url))
            eventually(lambda: WARM.search(second.text()), timeout=600, what=second.text())
            its_fence = fence(url)
        with orders.pushing(1000):
            eventually(lambda: fence(url) != its_fence, what=second.text())
            before = committed(url)
            eventually(lambda: committed(url) > before, what=second.text())
        orders.check()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_standby_for_which_the_cluster_has_no_core_ends_when_asked_and_goes_on_when_there_is_one(
    database_url: str, standalone_cluster: SparkCluster, tmp_path: Path
) -> None:
    url = database_url
    command = penstock_run(standalone_cluster.url, "--json", "--report", "0.2")
    machines = [Machine(tmp_path / name) for name in "abc"]
    for machine in machines:
        machine.write("app.py", PIPELINE)
    first, second, third = (machine.running(*command, PENSTOCK_DATABASE_URL=url) for machine in machines)
    with Orders(url) as orders, ExitStack() as last:
        with first as driver:
            orders.push(500)
            eventually(lambda: committed(url) >= 1, timeout=600, what=driver.text())
            with second as standby:
                eventually(lambda: WARMING.search(standby.text()), timeout=600, what=standby.text())
                assert standby.terminate() == 0, standby.text()
            standby = last.enter_context(third)
            eventually(lambda: WARMING.search(standby.text()), timeout=600, what=standby.text())
        orders.check()
