"""Applies the steps of a stream to a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.engine.compile import exact_decimals
from penstock.engine.reference_tables import ReferenceTables
from penstock.engine.worker.read_config import EVENT_JSON, METADATA, SYSTEM_COLUMNS
from penstock.engine.worker.udf.udf_stage import UdfStage
from penstock.stream.sql.select_step import with_stream_columns
from penstock.stream.steps import FilterStep, FlatMapStep, Lookup, MapStep, SqlStep, Step


def apply_steps(frame: DataFrame, steps: Sequence[Step | UdfStage], references: ReferenceTables) -> DataFrame:
    for step in steps:
        match step:
            case UdfStage():
                frame = step.apply(frame, references.read_config)
            case FilterStep(condition=condition):
                frame = frame.filter(exact_decimals.column(frame.sparkSession, condition))
            case MapStep(expression=expression):
                frame = _select(frame, expression)
            case FlatMapStep(expression=expression):
                frame = _explode(frame, expression)
            case SqlStep():
                frame = _run_sql(frame, step, references)
            case Lookup():
                frame = _look_up(frame, step, references)
            case _:
                raise TypeError(f"{type(step).__name__} does not run inside Spark")
    return frame


def _internal_columns(frame: DataFrame) -> list[str]:
    return [name for name in (*SYSTEM_COLUMNS.names, EVENT_JSON, METADATA) if name in frame.columns]


def _select(frame: DataFrame, expression: Any) -> DataFrame:
    internal = _internal_columns(frame)
    if isinstance(expression, str):
        frame.createOrReplaceTempView("stream")
        query = f"SELECT {', '.join(internal)}, {expression} FROM stream"  # noqa: S608 - the user's own SQL
        return exact_decimals.run_query(frame.sparkSession, query)
    return exact_decimals.select(frame, internal, expression)


def _explode(frame: DataFrame, expression: Any) -> DataFrame:
    internal = _internal_columns(frame)
    column = exact_decimals.column(frame.sparkSession, expression)
    exploded = frame.select(*internal, F.explode(column).alias("value"))
    if isinstance(exploded.schema["value"].dataType, StructType):
        return exploded.select(*internal, "value.*")
    return exploded


def _run_sql(frame: DataFrame, step: SqlStep, references: ReferenceTables) -> DataFrame:
    spark = frame.sparkSession
    frame.createOrReplaceTempView("stream")
    for name, table in step.tables.items():
        references.frame(spark, name, table).createOrReplaceTempView(name)
    return exact_decimals.run_query(spark, with_stream_columns(step.query, _internal_columns(frame)))


def _look_up(frame: DataFrame, step: Lookup, references: ReferenceTables) -> DataFrame:
    table = references.frame(frame.sparkSession, step.name, step.table)
    # A column of the table replaces the field of the same name.
    added, internal = _added_columns(step, table.columns), _internal_columns(frame)
    replaced = [name for name in frame.columns if name.lower() in added and name not in internal]
    return frame.drop(*replaced).join(F.broadcast(table), list(step.on), step.how)


def lookup_columns(spark: SparkSession, steps: Sequence[Any], references: ReferenceTables) -> set[str]:
    """The columns that lookups add to the event, or replace in it."""
    lookups = [(step, references.columns(spark, step.name, step.table)) for step in steps if isinstance(step, Lookup)]
    return {name for step, columns in lookups for name in columns if name.lower() in _added_columns(step, columns)}


def _added_columns(step: Lookup, columns: Sequence[str]) -> set[str]:
    """The columns of a lookup's table without those to join on, in lower case: Spark ignores the case of names."""
    return {name.lower() for name in columns} - {name.lower() for name in step.on}
