"""Registers the Python functions of SQL statements in a Spark session."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.core.errors import InvalidRequest
from penstock.stream.steps import SqlFunction


def register_functions(spark: SparkSession, functions: Iterable[SqlFunction]) -> None:
    """Register functions in a session of their own, in which none of them hides a function of Spark."""
    for each in functions:
        if spark.catalog.functionExists(each.name):
            raise InvalidRequest(f"Spark has a function {each.name}: give the Python function another name")
        spark.udf.register(each.name, F.udf(_UtcTimes(each.function), each.returns, useArrow=True))


@dataclass(frozen=True)
class _UtcTimes:
    """Calls a function with times in UTC. Spark passes times of the machine's time zone, without that zone."""

    function: Callable[..., Any]

    def __call__(self, *values: Any) -> Any:
        return self.function(*[each.astimezone(UTC) if type(each) is datetime else each for each in values])
