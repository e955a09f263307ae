"""The faults of a cluster find what they are to hit, whatever was lost before; and the cluster outlives them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from chaos.faults import Faults, Impossible
from chaos.plan import Fault, Plan
from chaos.system import System
from tests.engine.crash.orders import eventually

JOBS = """
import sys

from penstock.engine.spark.spark_session import spark_session

spark = spark_session(master=sys.argv[1], conf={"spark.executor.memory": "512m", "spark.executor.cores": "1"})
while True:
    spark.range(0, 100, 1, 2).mapInArrow(lambda batches: batches, "id long").collect()
    print("done", flush=True)
"""


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    made = System(Plan(1, 60, (), cluster=True), tmp_path / "run")
    yield made
    made.remove()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_faults_hit_workers_and_masters_that_came_later(system: System, tmp_path: Path) -> None:
    faults, (app, log) = Faults(system), (tmp_path / "app.py", tmp_path / "log")
    app.write_text(JOBS)
    with ExitStack() as stack:
        system.start_cluster(stack)
        cluster = system.cluster
        assert cluster is not None
        with log.open("wb") as output:
            jobs = subprocess.Popen([sys.executable, app, cluster.url], stdout=output, stderr=output)
        stack.callback(jobs.wait)
        stack.callback(jobs.kill)

        def go_on() -> None:
            before = log.read_text().count("done")
            eventually(lambda: log.read_text().count("done") > before + 1, what=log.read_text())

        go_on()
        for number in range(2):
            assert faults.do(Fault(0, "Spark worker killed", 0, 0)) == f"worker {number + 1}"
        go_on()
        assert faults.do(Fault(0, "Spark master killed", 0.5, 0)) == "start 2"
        assert faults.do(Fault(0, "Spark worker paused", 0.5, 0.9)) == "worker 4"
        for kind in ("executor paused", "executor killed"):
            eventually(lambda: cluster.executors(2) or cluster.executors(3), what="an executor")
            assert faults.do(Fault(0, kind, 0.5, 0)).startswith("executor")
            go_on()
        for kind in ("Spark's Python paused", "Spark's Python killed"):
            assert "pyspark" in faults.do(Fault(0, kind, 0.5, 0))
            go_on()
        assert jobs.poll() is None


def test_a_fault_of_a_cluster_is_not_done_without_one(system: System) -> None:
    with pytest.raises(Impossible, match="no cluster"):
        Faults(system).do(Fault(0, "Spark worker paused", 1, 0))
