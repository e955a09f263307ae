"""The exchange of rows before an operator with state: the rows of a shard come into one task."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.engine.state.operator_state import SHARD, WEIGHT
from penstock.engine.state.runs import HASH


def exchange(frame: DataFrame, shards: int, tasks: int) -> DataFrame:
    """Bring the rows of a shard into one task. A task may have several shards."""
    shard = F.pmod(F.pmod(F.shiftright(F.col(HASH), 32), F.lit(shards)), F.lit(tasks)).cast("int")
    return frame.withColumn(SHARD, shard).repartitionById(tasks, F.col(SHARD)).drop(SHARD)


def with_empty_rows(frame: DataFrame, shards: int) -> DataFrame:
    """Add a row of weight 0 to each shard, so that Spark calls an operator that has no other rows.

    Its other columns are null.
    """
    values = {HASH: F.shiftleft(F.col("id"), 32), WEIGHT: F.lit(0)}
    columns = [
        values.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in frame.schema.fields
    ]
    return frame.union(frame.sparkSession.range(0, shards, 1, 1).select(columns))
