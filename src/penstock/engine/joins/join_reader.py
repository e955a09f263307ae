"""Read the joined events of a cycle, as an EventReader reads the events of one stream."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.engine.joins.join_inputs import JoinInput, JoinRows
from penstock.engine.joins.join_state import JOIN_SHARDS, JoinState
from penstock.engine.joins.matcher import JoinMatcher
from penstock.engine.state.exchange import exchange, with_empty_rows
from penstock.engine.worker.event_reader import EventReader, decode_events
from penstock.engine.worker.read_config import ReadConfig
from penstock.stream.steps import Lookup, SqlStep


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

    @property
    def reads_tables(self) -> bool:
        """True if a step of an input reads a reference table."""
        return any(isinstance(step, Lookup | SqlStep) for each in self.inputs for step in each.split.spark_steps)

    def frame(self, spark: SparkSession, tasks: int) -> DataFrame:
        """Return the pairs of a cycle whose events are read by so many tasks."""
        rows = [each.to_join_rows(EventReader(each.read_config).frame(spark, tasks)) for each in self.inputs]
        return self._join(rows, tasks)

    def sample_frame(self, spark: SparkSession) -> DataFrame:
        """Return the pairs among the samples of both inputs."""
        rows = []
        for each in self.inputs:
            table = decode_events(spark, each.read_config, each.sample)
            rows.append(each.to_join_rows(spark.createDataFrame(table)))
        return self._join(rows, 1)

    def _join(self, rows: Sequence[JoinRows], tasks: int) -> DataFrame:
        left, right = rows
        events = left.frame.unionByName(right.frame, allowMissingColumns=True)
        if self.state.is_outer:
            # Each shard emits the rows that have expired.
            events = with_empty_rows(events, JOIN_SHARDS)
        events = events.coalesce(1) if tasks == 1 else exchange(events, JOIN_SHARDS, min(tasks, JOIN_SHARDS))
        matcher = dataclasses.replace(self._matcher, lines=(left.lines, right.lines))
        return self._cast(events.mapInArrow(matcher, from_arrow_schema(matcher.output_schema)))

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
