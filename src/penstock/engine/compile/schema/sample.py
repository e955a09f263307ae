"""Runs the steps of a stream over a sample of its newest events, to infer the types of later fields.

Functions run in a Spark worker, because one that ends its process must not harm the driver. Steps with side effects are
skipped.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.core import json
from penstock.engine.compile.spark_steps import apply_steps
from penstock.engine.compile.split_stream import SplitStream
from penstock.engine.reference_tables import ReferenceTables
from penstock.engine.spark.errors import error_summary
from penstock.engine.worker.chunk_slices import ChunkSlice
from penstock.engine.worker.event_metadata import EventMetadata
from penstock.engine.worker.event_reader import decode_events, run_in_worker, to_chunk_slices
from penstock.engine.worker.read_config import ReadConfig
from penstock.engine.worker.udf.udf_batch import UdfBatch, UdfItem
from penstock.engine.worker.udf.udf_stage import UdfStage
from penstock.engine.worker.udf.udf_steps import run_udf_steps
from penstock.log.event import Event
from penstock.stream.steps import FilterStep, FlatMapStep, MapStep, Retries, Step

_logger = logging.getLogger("penstock.engine")

#: How many of the newest events are in a sample.
SAMPLE_SIZE = 1000
#: How long to search for events that do not end their worker, if some do.
_SEARCH_SECONDS = 10.0
#: Spark reports a worker that ended only in the message of a general exception.
_WORKER_ENDED = re.compile(r"Python worker exited|worker crashed|SystemExit")


def run_reader_udfs(spark: SparkSession, split: SplitStream, sample: Sequence[Event]) -> list[bytes]:
    """The sample as JSON lines after the functions of the reader."""
    if not split.reader_steps:
        return [event.raw for event in sample]
    steps = _without_side_effects(split.reader_steps)
    queues = dict(enumerate(split.stream.sources))

    def run(slices: list[ChunkSlice]) -> list[bytes]:
        metadata = EventMetadata(slices)
        items = [UdfItem(row, json.decode(piece.columns.data)) for row, piece in enumerate(slices)]
        batch = UdfBatch("sample", items, metadata.event_ref, lambda row: metadata.to_dict(row, queues))
        run_udf_steps(steps, batch)
        return batch.encode_items("sample")[0]

    lines = _run_surviving(sample, lambda part: run_in_worker(spark, partial(run, to_chunk_slices(queues, part))))
    return list(chain.from_iterable(lines))


def run_stage(
    stage: UdfStage,
    steps: Sequence[Step | UdfStage],
    reader: DataFrame,
    references: ReferenceTables,
    sample: Sequence[Event],
) -> list[bytes]:
    """The sample as JSON lines after a stage and the steps before it; empty if the stage only has side effects."""
    stage = dataclasses.replace(stage, steps=_without_side_effects(stage.steps))
    if not stage.steps:
        return []
    frame = apply_steps(_sample_frame(reader, references.read_config, sample), steps, references)
    try:
        events = frame.toArrow()
    except Exception as error:
        _warn(error)
        return []

    def run(table: pa.Table) -> list[bytes]:
        return run_in_worker(reader.sparkSession, lambda: stage.run("sample", table).encode_items("sample")[0])

    return list(chain.from_iterable(_run_surviving(events, run)))


def run_all_udfs(
    split: SplitStream, reader: DataFrame, references: ReferenceTables, sample: Sequence[Event]
) -> list[bytes]:
    """The sample as JSON lines after the last function of the stream."""
    stages = [(index, step) for index, step in enumerate(split.spark_steps) if isinstance(step, UdfStage)]
    for index, stage in reversed(stages if sample else []):
        if lines := run_stage(stage, split.spark_steps[:index], reader, references, sample):
            return lines
    return run_reader_udfs(reader.sparkSession, split, sample)


def _without_side_effects(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps that only compute, without retries."""
    pure = [step for step in steps if isinstance(step, MapStep | FlatMapStep | FilterStep)]
    return tuple(dataclasses.replace(step, retries=Retries(0, 0.0, 5.0)) for step in pure)


def _sample_frame(reader: DataFrame, config: ReadConfig, sample: Sequence[Event]) -> DataFrame:
    """The sample as the reader would return it."""
    pure = dataclasses.replace(config, steps=_without_side_effects(config.steps), failed_events=None)
    tables = _run_surviving(sample, lambda part: decode_events(reader.sparkSession, pure, part))
    return reader.sparkSession.createDataFrame(pa.concat_tables([config.event_schema.empty_table(), *tables]))


def _run_surviving(sample: Any, run: Callable[[Any], Any]) -> list[Any]:
    """Run a sample; if that ends the worker, bisect the sample until at least half of it has run."""
    results, covered = [], 0
    parts = deque([sample])
    deadline = time.monotonic() + _SEARCH_SECONDS
    while parts and (len(parts[0]) >= len(sample) // 2 or time.monotonic() < deadline):
        part = parts.popleft()
        try:
            results.append(run(part))
            covered += len(part)
            if 2 * covered >= len(sample):
                break
        except Exception as error:
            if part is sample:
                _warn(error)
            if not _WORKER_ENDED.search(str(error)):
                break
            if len(part) > 1:
                middle = len(part) // 2
                parts += [part[:middle], part[middle:]]
    return results


def _warn(error: Exception) -> None:
    _logger.warning("a function failed, so types are inferred without a part of the sample: %s", error_summary(error))
