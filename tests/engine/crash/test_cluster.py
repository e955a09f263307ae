"""The pipeline on a standalone cluster, of which a part is lost in mid-cycle."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engine import cycle_plan as plans
from tests.engine.crash.drivers import Driver
from tests.engine.crash.orders import Orders, ask, committed, eventually
from tests.engine.spark_cluster import SparkCluster

SMALL_EXECUTORS = {"spark.executor.memory": "512m", "spark.executor.cores": "1"}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_worker_that_is_killed_in_mid_cycle_costs_nothing(
    database_url: str, standalone_cluster: SparkCluster, tmp_path: Path
) -> None:
    url, cluster = database_url, standalone_cluster
    with (
        Orders(url) as orders,
        Driver(url, tmp_path / "driver.log", master=cluster.url, conf=SMALL_EXECUTORS) as driver,
    ):
        orders.push(300)
        eventually(lambda: committed(url) >= 1, what=driver.text())
        eventually(lambda: cluster.executors(0) and cluster.executors(1), what="an executor on each worker")
        for _ in range(3):
            orders.push(30_000)
        with orders.pushing(2000):
            # A large one, which has a task on each worker.
            large = "SELECT count(*) FROM penstock.cycles WHERE committed_at IS NULL AND planned > 10000"
            eventually(lambda: ask(url, large), what=driver.text())
            cluster.kill_worker(0)
            before = committed(url)
            eventually(lambda: committed(url) > before, what=driver.text())
        orders.check()
        assert driver.process.poll() is None


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_large_cycle_has_a_task_for_each_core_that_came_after_the_driver(database_url: str, tmp_path: Path) -> None:
    url = database_url
    with (
        SparkCluster(tmp_path / "cluster", workers=3) as cluster,
        Orders(url) as orders,
        Driver(url, tmp_path / "driver.log", master=cluster.url, conf=SMALL_EXECUTORS) as driver,
    ):
        orders.push(300)
        eventually(lambda: committed(url) >= 1, what=driver.text())
        eventually(lambda: all(cluster.executors(i) for i in range(3)), what="an executor on each worker")
        orders.push(30_000)
        eventually(lambda: orders.counted() >= orders.count, what=driver.text())
        large = ask(url, "SELECT plan FROM penstock.cycles WHERE planned > 10000 ORDER BY cycle DESC LIMIT 1")
        assert len(plans.decode(large).tasks) == 3
        orders.check()
