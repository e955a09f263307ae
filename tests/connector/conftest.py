"""Databases, queues and Spark for the tests of the connector."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.engine.spark.spark_session import spark_session
from tests.connector.direct_source import DirectSource
from tests.engine.pipelines import Bench
from tests.engine.pipelines import bench as benches


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    running = SparkContext._active_spark_context is not None
    session = spark_session(app_name="penstock tests", master=None if running else "local[2]")
    yield session
    session.stop()


@pytest.fixture
def bench(database_url: str) -> Iterator[Bench]:
    with benches(database_url) as made:
        yield made


@pytest.fixture
def url_file(database_url: str, tmp_path: Path) -> str:
    """A file with the connection string, as a mounted secret."""
    file = tmp_path / "database-url"
    file.write_text(database_url + "\n")
    return str(file)


@pytest.fixture
def direct(url_file: str) -> Iterator[DirectSource]:
    with closing(DirectSource(url_file)) as made:
        yield made
