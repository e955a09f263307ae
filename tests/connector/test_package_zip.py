"""The zipped package works where Penstock is not installed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.connector.package_zip import bare_python, packed_package


def test_zipped_package_needs_only_the_documented_libraries(tmp_path: Path) -> None:
    bare, archive = bare_python(tmp_path / "python"), packed_package(tmp_path)

    def run(program: str, path: str) -> str:
        done = subprocess.run([bare, "-c", program], env=os.environ | {"PYTHONPATH": path}, capture_output=True)
        return (done.stdout + done.stderr).decode()

    assert "No module named 'penstock'" in run("import penstock", "")
    connector = ("read.batch", "read.stream", "read.result_table", "write.staged_writer")
    worker = ("read_config", "event_decoder", "preaggregate", "spark_task")
    modules = [
        *(f"penstock.connector.{name}" for name in connector),
        *(f"penstock.engine.worker.{name}" for name in worker),
    ]
    assert run(f"import pyspark_penstock, {', '.join(modules)}; print('complete')", str(archive)) == "complete\n"
