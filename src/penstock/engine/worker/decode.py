"""In a Spark worker: JSON into typed columns, and the Python callables that come first in a stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core import json
from penstock.core.timestamps import from_micros
from penstock.engine.plan import Lane
from penstock.engine.worker import event_time
from penstock.engine.worker.chunk_reader import Progress, Slice
from penstock.engine.worker.event_time import NEVER
from penstock.engine.worker.json_columns import Parser
from penstock.engine.worker.read_config import ABOUT, DATA, Reading
from penstock.engine.worker.udf import Batch, Failure, Item, Watch, encode_items, run_steps
from penstock.log.queue import DEFAULT_KEY
from penstock.stream.expression import takes_context
from penstock.stream.steps import Retries


class Columns:
    """Makes columns of slices."""

    def __init__(self, reading: Reading, progress: dict[int, Progress], failures: list[Failure]) -> None:
        self._reading = reading
        self._progress = progress
        self._failures = failures
        #: Events that a condition left out, by stage.
        self.dropped: Counter[str] = Counter()
        self._time_path = reading.event_time.split(".") if isinstance(reading.event_time, str) else None
        if self._time_path is not None and not reading.steps and self._time_path[0] not in reading.fields.names:
            raise ValueError(f"the type of {self._time_path[0]!r} is not known")
        self._parser = Parser(pa.schema([*reading.fields, *reading.looked_into]))

    def table(self, slices: list[Slice]) -> pa.Table:
        """The slices' events, less those that failed."""
        rows = sum(piece.columns.count for piece in slices)
        data = b"\n".join(piece.columns.data for piece in slices)
        meta = Meta(slices, rows)
        if self._reading.steps or callable(self._reading.event_time):
            table, places, times = self._through_python(slices, meta, data.split(b"\n"))
        else:
            table, places, times = self._straight(meta, data, rows)
        self._bounded(times, meta)
        return self._assemble(meta, table, places)

    def _straight(self, meta: Meta, data: bytes, rows: int) -> tuple[pa.Table, Any, Any]:
        """Nothing but decoding."""
        table, problems = self._parser.parse(data, rows)
        for place, problem in problems.items():
            self._fail(meta, place, "parse", problem)
        times, missing = self._times(meta, table, rows)
        for place, problem in missing.items():
            if place not in problems:
                self._fail(meta, place, "event time", problem)
        if self._reading.with_data:
            table = table.append_column(DATA, pa.array(data.decode().split("\n"), pa.string()))
        bad = problems.keys() | missing.keys()
        if bad:
            places = np.array([i for i in range(rows) if i not in bad], dtype=np.int64)
            return table.take(places), places, times
        return table, None, times

    def _through_python(self, slices: list[Slice], meta: Meta, lines: list[bytes]) -> tuple[pa.Table, Any, Any]:
        """Decode each event, run the callables, decode what comes out into columns."""
        values = [json.decode(line) for line in lines]
        times = meta.times(self._reading.event_time)
        batch = Batch(
            self._reading.query_name,
            [],
            meta.where,
            lambda place: meta.describe(place, self._reading.queues),
            again=lambda place: json.decode(lines[place]),
        )
        if times is None:
            times = np.full(len(values), NEVER, dtype=np.int64)
            read = self._time_reader(batch)
            with Watch(Retries().timeout_seconds) as watch:
                for place, value in enumerate(values):
                    try:
                        watch.begin()
                        times[place] = event_time.of_value(read(place, value))
                    except Exception as error:
                        batch.fail(place, "event time", error, 1)
                    finally:
                        watch.end()
        failed = {(f.partition, f.offset) for f in batch.failures}
        batch.items = [
            Item(place, value) for place, value in enumerate(values) if not failed or batch.where(place) not in failed
        ]
        run_steps(self._reading.steps, batch)
        last = self._reading.steps[-1].name if self._reading.steps else "event time"
        out, sources = encode_items(batch, last)
        self._failures += batch.failures
        self.dropped.update(batch.dropped)
        table, problems = self._parser.parse(b"\n".join(out), len(out))
        if problems:
            misfits = {sources[place] for place in problems}
            for place, problem in problems.items():
                self._fail(meta, sources[place], last, f"what it returned does not fit: {problem}")
            keep = [i for i, source in enumerate(sources) if source not in misfits]
            table, out, sources = table.take(keep), [out[i] for i in keep], [sources[i] for i in keep]
        if self._reading.with_data:
            table = table.append_column(DATA, pa.array([line.decode() for line in out], pa.string()))
        return table, np.array(sources, dtype=np.int64), times

    def _time_reader(self, batch: Batch) -> Callable[[int, Any], Any]:
        event_time = self._reading.event_time
        if self._time_path is not None:
            path = self._time_path

            def read(place: int, value: Any) -> Any:
                for name in path:
                    value = value.get(name) if isinstance(value, dict) else None
                return value

            return read
        if takes_context(event_time):
            return lambda place, value: event_time(value, batch.context("event time", place))
        return lambda place, value: event_time(value)

    def _times(self, meta: Meta, table: pa.Table, rows: int) -> tuple[Any, dict[int, str]]:
        times = meta.times(self._reading.event_time)
        if times is not None:
            return times, {}
        path = self._time_path or []
        column = table.column(path[0])
        for name in path[1:]:
            column = pa.compute.struct_field(column, name)
        return event_time.of_column(column)

    def _bounded(self, times: Any, meta: Meta) -> None:
        """For each event, up to where windows were closed before it, by the rule that does not depend on batching."""
        bounds = np.empty(len(times), dtype=np.int64)
        place = 0
        for lane, count, appended_us in meta.runs():
            upto = place + count
            seen = self._progress[lane.partition_id]
            # What tells no time moves no time: a partition with nothing else is idle.
            if times[place:upto].max(initial=NEVER) != NEVER:
                seen.last = appended_us
            running = np.maximum.accumulate(np.concatenate(([seen.high], times[place:upto])))
            floor = NEVER if lane.floor_us is None else lane.floor_us
            bounds[place:upto] = np.maximum(running[:-1] - self._reading.lateness_us, floor)
            seen.high = int(running[-1])
            place = upto
        meta.time, meta.bound = times, bounds

    def _assemble(self, meta: Meta, table: pa.Table, places: Any) -> pa.Table:
        columns = {
            "__partition": pa.array(meta.partition if places is None else meta.partition[places]),
            "__offset": pa.array(meta.offset if places is None else meta.offset[places]),
            "__key": meta.keys() if places is None else meta.keys().take(pa.array(places)),
            "__time": pa.array(meta.time if places is None else meta.time[places]),
            "__bound": pa.array(meta.bound if places is None else meta.bound[places]),
            "__redriven": pa.array(meta.redriven() if places is None else meta.redriven()[places]),
        }
        if self._reading.with_about:
            those = range(len(meta.partition)) if places is None else places.tolist()
            told = [json.encode(meta.describe(place, self._reading.queues)).decode() for place in those]
            columns[ABOUT] = pa.array(told, pa.string())
        schema = self._reading.events
        arrays = [columns[name] if name in columns else table.column(name) for name in schema.names]
        return pa.Table.from_arrays(arrays, schema=schema).combine_chunks()

    def _fail(self, meta: Meta, place: int, stage: str, error: str) -> None:
        self._failures.append(Failure(*meta.where(place), stage, error))


class Meta:
    """Where each event of some slices stands."""

    def __init__(self, slices: list[Slice], rows: int) -> None:
        self._slices = slices
        counts = np.array([piece.columns.count for piece in slices], dtype=np.int64)
        self._counts = counts
        self._ends = counts.cumsum()
        self.partition = np.repeat(np.array([s.lane.partition_id for s in slices], dtype=np.int64), counts)
        firsts = np.array([piece.first for piece in slices], dtype=np.int64)
        self.offset = np.arange(rows, dtype=np.int64) + np.repeat(firsts - self._ends + counts, counts)
        self.time = self.bound = np.empty(0, dtype=np.int64)
        self._keys: pa.Array | None = None

    def keys(self) -> pa.Array:
        """Each event's key, or null."""
        if self._keys is None:
            self._keys = _keys(self._slices, self._counts)
        return self._keys

    def where(self, place: int) -> tuple[int, int]:
        """Partition and offset of one event."""
        return int(self.partition[place]), int(self.offset[place])

    def runs(self) -> Iterator[tuple[Lane, int, int]]:
        """The partitions as they follow each other, how many events of each do, and when the last was appended."""
        for _, pieces in groupby(self._slices, key=lambda piece: piece.lane.partition_id):
            some = list(pieces)
            yield some[0].lane, sum(piece.columns.count for piece in some), some[-1].appended_us

    def redriven(self) -> np.ndarray[Any, Any]:
        """Whether each event is a dead letter that was sent back."""
        return np.repeat(np.array([s.redriven for s in self._slices], dtype=bool), self._counts)

    def times(self, event_time: Any) -> np.ndarray[Any, Any] | None:
        """The times that need no look at the data: of appending, or what producers said beside it."""
        if event_time is not None and event_time is not True:
            return None
        appended = np.repeat(np.array([s.appended_us for s in self._slices], dtype=np.int64), self._counts)
        if event_time is True:
            place = 0
            for piece in self._slices:
                if piece.columns.times is not None:
                    for i, said in enumerate(piece.columns.times):
                        if said is not None:
                            appended[place + i] = said
                place += piece.columns.count
        return appended

    def describe(self, place: int, queues: dict[int, str]) -> dict[str, Any]:
        """All about one event, for a callable that asks."""
        index = int(np.searchsorted(self._ends, place, side="right"))
        piece = self._slices[index]
        columns, rest = piece.columns, place - int(self._ends[index] - self._counts[index])
        given = None if columns.ids is None else columns.ids[rest]
        said = None if columns.times is None else columns.times[rest]
        appended = from_micros(piece.appended_us)
        return {
            "queue": queues.get(piece.lane.queue_id),
            "partition": piece.lane.name,
            "partition_id": piece.lane.partition_id,
            "offset": piece.first + rest,
            "key": self.keys()[place].as_py(),
            "id": given or f"{piece.lane.partition_id}-{piece.first + rest}",
            "time": appended if said is None else from_micros(said),
            "appended_at": appended,
            "headers": (columns.headers[rest] if columns.headers else None) or {},
            "is_redriven": piece.redriven,
        }


def _keys(slices: Sequence[Slice], counts: np.ndarray[Any, Any]) -> pa.Array:
    """Each event's key: in a queue by key, the name of its lane."""
    named = [piece.lane.name if piece.lane.is_lane and piece.lane.name != DEFAULT_KEY else None for piece in slices]
    if all(name is not None for name in named):
        return pa.array(named, pa.string()).take(pa.array(np.repeat(np.arange(len(slices)), counts)))
    parts: list[pa.Array] = []
    some: list[str | None] = []
    for name, piece in zip(named, slices, strict=True):
        keys: Any = piece.columns.keys
        if name is None and isinstance(keys, pa.Array):
            parts += [pa.array(some, pa.string()), keys]
            some = []
        else:
            some += [name] * piece.columns.count if keys is None or name is not None else keys
    return pa.concat_arrays([*parts, pa.array(some, pa.string())])
