"""Python callables that come after something that Spark does: they run over Arrow batches in Spark's workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.core import json
from penstock.engine.worker.json_columns import Parser
from penstock.engine.worker.json_values import plain
from penstock.engine.worker.read_config import ABOUT, DATA, META, NO_FIELDS, Reading, events_schema
from penstock.engine.worker.reports import Report
from penstock.engine.worker.task import report_stage
from penstock.engine.worker.udf import Batch, Failure, Item, encode_items, run_steps
from penstock.stream.expression import is_python, takes_context
from penstock.stream.steps import Call, Filter, FlatMap, Foreach, Map, Step, makes_columns, runs_in_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Stage:
    """Callables in the middle of a stream, one after the other."""

    name: str
    #: Which of the stream's Python stages it is; 0 is the one that runs while reading.
    number: int
    steps: tuple[Step, ...]
    #: Whether events come in as they were pushed, perhaps with fields added, and not as columns alone.
    takes_data: bool
    #: Whether whole events are wanted after it.
    gives_data: bool
    #: The fields that are wanted after it, with their types; None until they are known.
    fields: pa.Schema | None = None
    #: Whether a stage after it asks what is known of an event.
    gives_about: bool = False
    #: Columns that were only taken out of the events for Spark to look at.
    copies: frozenset[str] = frozenset()
    #: Fields that something later takes out of the whole event: read to find events that do not fit, and not given.
    looked_into: pa.Schema = NO_FIELDS

    @property
    def schema(self) -> pa.Schema:
        """The columns that come out."""
        return events_schema(self.fields or [], self.gives_data, self.gives_about)

    @property
    def asks(self) -> bool:
        """Whether one of its callables is told what is known of an event."""
        return any(asks_about(step) for step in self.steps)

    def apply(self, frame: DataFrame, reading: Reading) -> DataFrame:
        """The frame after the callables."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return frame.mapInArrow(_Runner(self, reading), from_arrow_schema(self.schema))

    def values(self, table: pa.Table | pa.RecordBatch) -> list[Any]:
        """The events of a batch, as the callables get them."""
        hidden = {*META.names, DATA, ABOUT}
        if self.takes_data:
            hidden |= self.copies
        names = [name for name in table.schema.names if name not in hidden]
        rows: list[dict[str, Any]] = [{} for _ in range(table.num_rows)]
        if names:
            rows = [plain(row) for row in table.select(names).to_pylist()]
        if not self.takes_data:
            return rows
        events = [json.decode(text) for text in table.column(DATA).to_pylist()]
        return [
            {**event, **row} if row and isinstance(event, dict) else event
            for event, row in zip(events, rows, strict=True)
        ]

    def run(self, query_name: str, table: pa.Table | pa.RecordBatch) -> tuple[list[bytes], list[int], Batch]:
        """Lines of JSON with the rows that they come from, and the batch, which knows what failed."""
        partitions = table.column("__partition").to_pylist()
        offsets = table.column("__offset").to_pylist()
        about = table.column(ABOUT) if self.asks else None
        batch = Batch(
            query_name,
            [Item(place, value) for place, value in enumerate(self.values(table))],
            lambda place: (partitions[place], offsets[place]),
            lambda place: {} if about is None else _told(about[place].as_py()),
            again=lambda place: self.values(table.slice(place, 1))[0],
        )
        run_steps(self.steps, batch)
        lines, places = encode_items(batch, self.steps[-1].name)
        return lines, places, batch


class _Runner:
    """What Spark calls in a worker."""

    def __init__(self, stage: Stage, reading: Reading) -> None:
        self._stage = stage
        self._reading = reading

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parser = Parser(pa.schema([*(self._stage.fields or []), *self._stage.looked_into]))
        report = Report([], [], {})
        for batch in cut_by_event(batches):
            yield self._batch(parser, batch, report)
        report_stage(self._reading, self._stage.number, report)

    def _batch(self, parser: Parser, batch: pa.RecordBatch, report: Report) -> pa.RecordBatch:
        lines, places, done = self._stage.run(self._reading.query_name, batch)
        report.failures += done.failures
        report.add_dropped(done.dropped)
        table, problems = parser.parse(b"\n".join(lines), len(lines))
        last = self._stage.steps[-1].name
        if problems:
            bad = {places[row] for row in problems}
            for row, problem in problems.items():
                partition, offset = (batch.column(name)[places[row]].as_py() for name in ("__partition", "__offset"))
                report.failures.append(Failure(partition, offset, last, f"what it returned does not fit: {problem}"))
            keep = [row for row, place in enumerate(places) if place not in bad]
            table, lines, places = table.take(keep), [lines[i] for i in keep], [places[i] for i in keep]
        rows = pa.array(np.array(places, dtype=np.int64))
        schema = self._stage.schema
        columns: list[Any] = []
        for name in schema.names:
            if name in META.names or name == ABOUT:
                columns.append(batch.column(name).take(rows))
            elif name == DATA:
                columns.append(pa.array([line.decode() for line in lines], pa.string()))
            else:
                columns.append(table.column(name).combine_chunks())
        return pa.RecordBatch.from_arrays([_whole(column) for column in columns], schema=schema)


def cut_by_event(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, cut where an event ends: what one of its parts fails in, all of them have failed in."""
    held: pa.RecordBatch | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        both = batch if held is None else pa.concat_batches([held, batch])
        partitions, offsets = (both.column(name).to_numpy() for name in ("__partition", "__offset"))
        others = np.flatnonzero((partitions != partitions[-1]) | (offsets != offsets[-1]))
        end = int(others[-1]) + 1 if len(others) else 0
        if end:
            yield both.slice(0, end)
        held = both.slice(end)
    if held is not None:
        yield held


def _told(about: str) -> dict[str, Any]:
    """What is known of an event, as it was when the event was read."""
    found: dict[str, Any] = json.decode(about)
    return {**found, **{name: datetime.fromisoformat(found[name]) for name in ("time", "appended_at")}}


def _whole(column: Any) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column


def group_stages(steps: Sequence[Step], at_the_end: bool) -> tuple[Step | Stage, ...]:
    """The steps with runs of callables made into stages. The first run has been taken out for the reader."""
    grouped: list[Step | Stage] = []
    keeps_event, number, place = True, 0, 0
    while place < len(steps):
        if not runs_in_python(steps[place]):
            keeps_event = keeps_event and not makes_columns(steps[place])
            grouped.append(steps[place])
            place += 1
            continue
        run = [steps[place]]
        while place + len(run) < len(steps) and runs_in_python(steps[place + len(run)]):
            run.append(steps[place + len(run)])
        place += len(run)
        number += 1
        later = steps[place:]
        gives = wants_data(later, at_the_end)
        tells = any(asks_about(step) for step in later)
        grouped.append(Stage(f"stage {number}", number, tuple(run), keeps_event, gives, gives_about=tells))
        keeps_event = True
    return tuple(grouped)


def asks_about(step: Step) -> bool:
    """Whether a callable is told what is known of an event."""
    match step:
        case Map(expression=function) | FlatMap(expression=function) | Filter(condition=function):
            pass
        case Foreach(function=function) | Call(function=function):
            pass
        case _:
            return False
    return is_python(function) and getattr(function, "asks", True) and takes_context(function)


def wants_data(steps: Sequence[Step], at_the_end: bool) -> bool:
    """Whether whole events are wanted by what follows, before something makes columns of them."""
    for step in steps:
        if runs_in_python(step):
            return True
        if makes_columns(step):
            return False
    return at_the_end
