"""Spark masters are validated before a JVM is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.errors import ConfigurationError
from penstock.engine.spark.spark_session import check_master
from tests.cli.command_line import CommandLine


@pytest.mark.parametrize(
    "master", ["foo://x", "local[x]", "spark:/host:7077", "", "local-cluster[2,1]", "http://h:7077"]
)
def test_an_invalid_master_is_rejected(master: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a Spark master: use spark://host:7077"):
        check_master(master)


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[*]", "local[4]", "local[2, 3]", "local-cluster[2,1,1024]"),
        *("spark://a:7077,b:7077", "k8s://https://kubernetes.default.svc", "yarn"),
    ],
)
def test_valid_masters_are_accepted(master: str) -> None:
    assert check_master(master) == master


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_error_names_a_master_that_does_not_answer(database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "app.sql"
    file.write_text("CREATE QUEUE o (a int); INSERT INTO x SELECT a FROM o;")
    command = CommandLine(database_url).start("sql", str(file), "--available-now", "--master", "spark://127.0.0.1:1")
    _, errors = command.communicate(timeout=800)
    assert command.returncode != 0
    last = errors.strip().splitlines()[-1]
    assert last.startswith("error: Spark cannot be started with the master 'spark://127.0.0.1:1': ")
