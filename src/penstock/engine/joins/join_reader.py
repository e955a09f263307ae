"""Read the joined events of a cycle, as an EventReader reads the events of one stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.engine.joins.join_inputs import JoinInput
from penstock.engine.joins.join_state import JoinState
from penstock.engine.joins.matcher import ExpiredRowReader, JoinMatcher
from penstock.engine.worker.event_reader import EventReader, decode_events
from penstock.engine.worker.read_config import ReadConfig


class JoinReader:
    """Reads the pairs of a cycle.

    ``casts`` has, for each input, the types of fields that JSON does not have.
    """

    def __init__(self, inputs: Sequence[JoinInput], matcher: JoinMatcher, casts: dict[str, dict[str, str]]) -> None:
        self.inputs = inputs
        self._matcher = matcher
        self._casts = casts

    @property
    def state(self) -> JoinState:
        return self._matcher.state

    @property
    def read_config(self) -> ReadConfig:
        return self._matcher.read_config

    def frame(self, spark: SparkSession, tasks: int) -> DataFrame:
        """Return the pairs of a cycle whose events are read by so many tasks."""
        rows = [each.to_join_rows(EventReader(each.read_config).frame(spark, tasks)) for each in self.inputs]
        return self._join(rows, single=tasks == 1)

    def sample_frame(self, spark: SparkSession) -> DataFrame:
        """Return the pairs among the samples of both inputs."""
        rows = []
        for each in self.inputs:
            table = decode_events(spark, each.read_config, each.sample)
            rows.append(each.to_join_rows(spark.createDataFrame(table)))
        return self._join(rows, single=True)

    def _join(self, rows: Sequence[DataFrame], *, single: bool) -> DataFrame:
        left, right = rows
        events = left.unionByName(right)
        events = events.coalesce(1) if single else events.repartition("__k")
        ordered = events.sortWithinPartitions("__k", "__time", "__side", "__partition", "__offset", "__line")
        schema = from_arrow_schema(self._matcher.output_schema)
        pairs = ordered.mapInArrow(self._matcher, schema)
        if self.state.is_outer:
            one_row = pairs.sparkSession.range(0, 1, 1, 1)
            pairs = pairs.union(one_row.mapInArrow(ExpiredRowReader(self._matcher), schema))
        return self._cast(pairs)

    def _cast(self, frame: DataFrame) -> DataFrame:
        """Cast fields to types that JSON does not have; invalid values become null."""
        for side, casts in self._casts.items():
            if not casts or side not in frame.columns:
                continue
            struct: Any = frame.schema[side].dataType
            fields = [
                F.col(f"{side}.`{name}`").try_cast(casts[name]).alias(name)
                if name in casts
                else F.col(f"{side}.`{name}`").alias(name)
                for name in struct.names
            ]
            frame = frame.withColumn(side, F.when(F.col(side).isNotNull(), F.struct(*fields)))
        return frame
