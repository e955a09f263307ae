"""Objects whose classes look like Spark's, without Spark."""

from __future__ import annotations

from typing import Any


def _double(name: str, module: str) -> Any:
    made = type(name, (), {"__module__": module, "__call__": lambda self: None, "__str__": lambda self: f"{name}<'a'>"})
    return type(name, (made,), {"__module__": f"{module}.classic"})()


COLUMN = _double("Column", "pyspark.sql.column")
FRAME = _double("DataFrame", "pyspark.sql.dataframe")
