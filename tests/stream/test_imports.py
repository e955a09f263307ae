"""A stream can be defined where there is no Spark."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import penstock.stream


def test_stream_modules_import_neither_spark_nor_a_database_driver() -> None:
    modules = [f"penstock.stream.{module.name}" for module in pkgutil.iter_modules(penstock.stream.__path__)]
    code = (
        f"import sys, importlib\nfor name in {modules!r}: importlib.import_module(name)\n"
        "print([name for name in ('pyspark', 'pyarrow', 'pandas', 'py4j', 'psycopg') if name in sys.modules])"
    )
    assert len(modules) > 5
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
