"""Exact decimal arithmetic in Spark SQL.

Spark keeps only 6 decimals of the product of two fields, and writes 5 as 5.000000000000000000. ``ExactDecimals.java``
rewrites expressions before Spark analyzes them, so that they keep 18 decimals and write 5. Spark contains a compiler
for the code that it generates, which compiles the file: nothing has to be installed.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from threading import Lock
from typing import Any, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

_compile_lock = Lock()


def column(spark: SparkSession, expression: Any) -> Column:
    """A Column with exact arithmetic, from SQL text or another Column."""

    if isinstance(expression, str) and expression.isidentifier():
        return F.expr(expression)
    given = expression if isinstance(expression, str) else expression._jc
    return ClassicColumn(_compile(spark._jvm).column(spark._jsparkSession, given))


def try_column(spark: SparkSession, expression: str) -> Column:
    """A Column with exact arithmetic that is null where the expression cannot be computed.

    That is where a quotient, a cast or a number that is too large would be an error, and where a function that has a
    variant with ``try_`` would be one. Spark's own casts count: ``name = 5`` is null where the name is no number.
    """
    if expression.isidentifier():
        return F.expr(expression)
    return ClassicColumn(_compile(spark._jvm).tryColumn(spark._jsparkSession, expression))


def with_null_for_failed_casts(spark: SparkSession, value: Column) -> Column:
    """A Column whose casts are null where they fail, also those that Spark adds."""
    wrapped = _compile(spark._jvm).withNullForFailedCasts(spark._jsparkSession, cast("ClassicColumn", value)._jc)
    return ClassicColumn(wrapped)


def select(frame: DataFrame, names: list[str], expression: Column) -> DataFrame:
    """Select columns and an expression, which gets the name that Spark would give it."""
    inexact = frame.select(*names, expression)
    return frame.select(*names, column(frame.sparkSession, expression)).toDF(*inexact.columns)


def run_query(spark: SparkSession, query: str) -> DataFrame:
    """The result of an SQL query, computed with exact arithmetic."""

    return ClassicDataFrame(_compile(spark._jvm).query(spark._jsparkSession, query), spark)


def _compile(jvm: Any) -> Any:
    # Py4J finds methods by the name of their class, so queries that start at the same time must not compile it twice.
    with _compile_lock:
        return _compile_once(jvm)


@lru_cache(maxsize=1)
def _compile_once(jvm: Any) -> Any:
    source = resources.files("penstock.engine.compile").joinpath("jvm", "ExactDecimals.java")
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader())
    compiler.cook(source.read_text(encoding="utf-8"))
    return compiler.getClassLoader().loadClass("ExactDecimals").newInstance()
