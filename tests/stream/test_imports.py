"""A stream can be defined where Spark is not installed."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import penstock.stream


def test_stream_modules_import_neither_spark_nor_a_database_driver() -> None:
    modules = [module.name for module in pkgutil.walk_packages(penstock.stream.__path__, "penstock.stream.")]
    assert len(modules) > 30
    assert imported_by(modules, "pyspark", "pyarrow", "pandas", "py4j", "psycopg") == "[]\n"


def test_steps_without_sql_do_not_import_sqlglot() -> None:
    """Spark's Python workers import these modules, and importing sqlglot takes 0.1 s."""
    modules = [f"penstock.stream.{name}" for name in ("definition", "steps", "aggregates", "gates", "fingerprint")]
    assert imported_by(modules, "sqlglot") == "[]\n"


def imported_by(modules: list[str], *libraries: str) -> str:
    code = (
        f"import sys, importlib\nfor name in {modules!r}: importlib.import_module(name)\n"
        f"print([name for name in {libraries!r} if name in sys.modules])"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
