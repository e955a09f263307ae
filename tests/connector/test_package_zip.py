"""The zipped package works where Penstock is not installed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.connector.package_zip import bare_python, packed_package


def test_zipped_package_needs_only_the_documented_libraries(tmp_path: Path) -> None:
    bare, archive = bare_python(tmp_path / "python"), packed_package(tmp_path)

    def said(program: str, path: str) -> str:
        done = subprocess.run([bare, "-c", program], env=os.environ | {"PYTHONPATH": path}, capture_output=True)
        return (done.stdout + done.stderr).decode()

    assert "No module named 'penstock'" in said("import penstock", "")
    modules = [
        *(f"penstock.connector.{name}" for name in ("read.batch", "read.stream", "read.result_table", "write.writer")),
        *(f"penstock.engine.worker.{name}" for name in ("read_config", "decode", "preaggregate", "task")),
    ]
    assert said(f"import pyspark_penstock, {', '.join(modules)}; print('whole')", str(archive)) == "whole\n"
