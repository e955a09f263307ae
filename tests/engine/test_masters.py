"""Where Spark may run: what it does not know is refused before a JVM is started, and in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.errors import ConfigurationError
from penstock.engine.spark.session import check_master
from tests.cli.command_line import CommandLine


@pytest.mark.parametrize(
    "master", ["foo://x", "local[x]", "spark:/host:7077", "", "local-cluster[2,1]", "http://h:7077"]
)
def test_a_master_that_is_none_is_refused(master: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is no place for Spark to run: name a cluster, spark://host:7077"):
        check_master(master)


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[*]", "local[4]", "local[2, 3]", "local-cluster[2,1,1024]"),
        *("spark://a:7077,b:7077", "k8s://https://kubernetes.default.svc", "yarn"),
    ],
)
def test_masters_that_spark_knows_are_taken(master: str) -> None:
    assert check_master(master) == master


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_a_master_that_does_not_answer_is_named_in_the_last_line(database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "app.sql"
    file.write_text("CREATE QUEUE o (a int); INSERT INTO x SELECT a FROM o;")
    command = CommandLine(database_url).start("sql", str(file), "--available-now", "--master", "spark://127.0.0.1:1")
    _, said = command.communicate(timeout=800)
    assert command.returncode != 0
    last = said.strip().splitlines()[-1]
    assert last.startswith("error: Spark cannot be started with the master 'spark://127.0.0.1:1': ")
