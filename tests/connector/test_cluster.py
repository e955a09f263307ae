"""A cluster whose machines have the dependencies, but not Penstock, which comes with the job."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from tests.connector.package_zip import bare_python, packed_package, whole_python
from tests.connector.read.test_batch import fill
from tests.connector.spark_jobs import REGISTERING_TOUR, program
from tests.engine.crash.machines import PIPELINE, Machine, penstock_run, spark_submit
from tests.engine.crash.orders import Orders, eventually
from tests.engine.crash.spark_event_log import PASSWORD, EventLog, contains_password
from tests.engine.pipelines import Bench
from tests.engine.spark_cluster import SparkCluster

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

#: What a Python is called here and there; each machine finds its own on its PATH.
PYTHON = "python-of-the-machine"


def path_with(command: Path) -> dict[str, str]:
    return {"PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    bare = bare_python(tmp_path / "there" / PYTHON)
    environment = {**path_with(bare), "PYTHONPATH": ""}
    missing = subprocess.run(
        [str(bare), "-c", "import penstock.core"], env=os.environ | environment, capture_output=True
    )
    assert b"No module named 'penstock" in missing.stderr
    with SparkCluster(tmp_path / "cluster", environment=environment) as started:
        yield started


def test_job_with_zipped_package_on_a_cluster_hides_the_password(
    bench: Bench, cluster: SparkCluster, tmp_path: Path
) -> None:
    bench.queue()
    bench.queue("copies")
    fill(bench, 1000)
    machine = Machine(tmp_path / "here")
    program(machine.directory, REGISTERING_TOUR).rename(machine.directory / "app.py")
    events = EventLog(machine.directory / "events")
    command = spark_submit(cluster.url, "--py-files", str(packed_package(tmp_path)), *events.options())
    here = path_with(whole_python(tmp_path / "here" / "bin" / PYTHON))
    secret = make_conninfo(bench.url, password=PASSWORD)
    with machine.running(*command, PENSTOCK_DATABASE_URL=secret, PYSPARK_PYTHON=PYTHON, **here) as job:
        assert job.process.wait(300) == 0, job.text()
    for line in ("read 1000 10", "wrote 1000", "followed 2000"):
        assert line in job.text()
    assert sorted(event.data["n"] for event in bench.events("copies")) == sorted([*range(1000), *range(1000)])
    # As they end, they remove what they had for themselves.
    eventually(lambda: not cluster.executors(0) and not cluster.executors(1), what="the executors have ended")
    written = [job.log, *cluster.files(), *eventually(events.files, what="the log of events is whole")]
    assert len(written) > 7
    assert not [path for path in written if contains_password(path)]


def test_pipeline_with_zipped_package_on_a_cluster(database_url: str, cluster: SparkCluster, tmp_path: Path) -> None:
    machine = Machine(tmp_path / "here")
    machine.write("rates.py", "def converted(event):\n    return {**event, 'amount': event['amount']}\n")
    machine.write(
        "app.py",
        PIPELINE.replace('("orders")', '("orders").map(rates.converted)').replace(
            "from penstock", "import rates\nfrom penstock", 1
        ),
    )
    brought = f"{packed_package(tmp_path)},{machine.directory / 'rates.py'}"
    here = path_with(whole_python(tmp_path / "here" / "bin" / PYTHON))
    command = penstock_run(cluster.url, "--py-files", brought, "--conf", f"spark.pyspark.python={PYTHON}")
    with (
        Orders(database_url) as orders,
        machine.running(*command, PENSTOCK_DATABASE_URL=database_url, **here) as driver,
    ):
        orders.push(500)
        orders.push(15_000)
        orders.check()
        assert driver.terminate() == 0, driver.text()
