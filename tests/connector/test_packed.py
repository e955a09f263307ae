"""What travels with a job as a zip works where nothing of the package is installed, not even its name."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.connector.packed import bare_python, packed_package


def test_the_package_is_whole_as_a_zip_with_only_what_the_documentation_says_installed(tmp_path: Path) -> None:
    bare, archive = bare_python(tmp_path / "python"), packed_package(tmp_path)

    def said(program: str, path: str) -> str:
        done = subprocess.run([bare, "-c", program], env=os.environ | {"PYTHONPATH": path}, capture_output=True)
        return (done.stdout + done.stderr).decode()

    assert "No module named 'penstock'" in said("import penstock", "")
    modules = [
        *(f"penstock.connector.{name}" for name in ("batch", "stream", "sink", "table")),
        *(f"penstock.engine.{name}" for name in ("reading", "decoding", "combining", "workers")),
    ]
    assert said(f"import pyspark_penstock, {', '.join(modules)}; print('whole')", str(archive)) == "whole\n"
