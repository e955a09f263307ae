"""Real Spark for the tests: one session for all of a worker's tests, and a cluster for those that need one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.engine.spark.spark_session import spark_session
from tests.engine.pipelines import Bench
from tests.engine.pipelines import bench as benches
from tests.engine.spark_cluster import SparkCluster


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # A page of the documentation may have started one before.
    running = SparkContext._active_spark_context is not None
    session = spark_session(app_name="penstock tests", master=None if running else "local[2]")
    yield session
    session.stop()


@pytest.fixture
def standalone_cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def bench(database_url: str, spark: SparkSession) -> Iterator[Bench]:
    """A fresh database, and a Spark that is warm after the first test."""
    with benches(database_url) as made:
        yield made
