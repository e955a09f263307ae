"""In a Spark worker: the chunks of a task, as PostgreSQL has them, cut to the offsets that are wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from msgspec import structs

from penstock.core.errors import CorruptChunk
from penstock.core.timestamps import to_micros
from penstock.db.pg_arrays import numbers
from penstock.db.statements import Statements
from penstock.engine.plan import Lane
from penstock.engine.worker.event_time import NEVER
from penstock.engine.worker.task import asking
from penstock.engine.worker.udf import Failure
from penstock.log.dead_letters import DAMAGED
from penstock.log.read.reader import named
from penstock.log.storage import chunk

_read = Statements("penstock.log.read", "reader.sql")
#: Fewer texts are as quickly unpacked one by one.
_FEW = 32
#: The byte before an empty text; those before longer ones count on from it, up to this length.
_HEAD, _LONG = 0xA0, 32
#: Rows that are taken over at a time, where the client's library can: one by one, each has its price.
_ROWS = 32 if psycopg.capabilities.has_stream_chunked() else 1

_Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Slice:
    """Consecutive events of one partition, out of one chunk."""

    lane: Lane
    first: int
    appended_us: int
    redriven: bool
    columns: chunk.Columns


class Progress:
    """What is known of a partition while it is read."""

    __slots__ = ("events", "first", "high", "last", "offsets")

    def __init__(self, lane: Lane) -> None:
        self.high = NEVER if lane.high_us is None else lane.high_us
        self.first = self.last = 0
        self.offsets = 0
        self.events = 0


def slices_of(
    conn: psycopg.Connection[Any],
    queues: dict[int, str],
    lanes: dict[int, Lane],
    progress: dict[int, Progress],
    failures: list[Failure],
) -> Iterator[Slice]:
    """The events of some ranges of partitions, chunk by chunk; what was gone through is noted in the progress.

    What a damaged chunk holds has failed, each event by itself.
    """
    wanted: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for lane in lanes.values():
        for stretch in lane.stretches:
            wanted.setdefault((lane.queue_id, stretch.segment), []).append(
                (lane.partition_id, stretch.start, stretch.stop)
            )
    for (queue_id, segment), ranges in sorted(wanted.items()):
        params = {
            "partitions": numbers([p for p, _, _ in ranges]),
            "starts": numbers([start for _, start, _ in ranges]),
            "ends": numbers([stop for _, _, stop in ranges]),
            "longest": chunk.MAX_EVENTS,
        }
        limits = {p: (start, stop) for p, start, stop in ranges}
        statement = _read.table("chunks_between", queue_id, segment)
        for partition_id, end, count, appended_at, target, body in _stream(conn, statement, params):
            lane = lanes[partition_id]
            start, stop = limits[partition_id]
            first = max(start, end - count)
            last = min(stop, end)
            seen = progress[partition_id]
            seen.offsets += last - first
            micros = to_micros(appended_at)
            seen.first = seen.first or micros
            if target is not None and target != lane.group_id:
                continue  # sent back to another group alone
            seen.events += last - first
            try:
                columns = chunk.decode(body, count, lazily=True)
                if isinstance(columns.keys, chunk.Texts):
                    columns = structs.replace(columns, keys=texts_of(columns.keys))
            except CorruptChunk as error:
                row = (end, count, appended_at, target)
                problem = named(error, queues.get(queue_id, ""), queue_id, segment, partition_id, row)
                if problem.is_newer:
                    raise problem from error
                failures += [Failure(partition_id, offset, DAMAGED, str(problem)) for offset in range(first, last)]
                continue
            if last - first < count:
                columns = _cut(columns, first - (end - count), last - (end - count))
            yield Slice(lane, first, micros, target is not None, columns)


def _stream(conn: psycopg.Connection[Any], statement: str, params: dict[str, Any]) -> Iterator[Any]:
    with asking():
        yield from conn.cursor().stream(statement, params, binary=True, size=_ROWS)


def texts_of(packed: chunk.Texts) -> Any:
    """A column of texts; without a Python object for each of them, if they are short and in ASCII."""
    if len(packed) < _FEW:
        return packed.unpacked()
    apart = _taken_apart(np.frombuffer(packed.items, np.uint8), len(packed))
    if apart is None:
        return pa.array(packed.unpacked(), pa.string())
    sizes, letters = apart
    bounds = np.concatenate(([0], sizes)).cumsum(dtype=np.int32)
    return pa.StringArray.from_buffers(len(packed), pa.py_buffer(bounds), pa.py_buffer(letters))


def _taken_apart(data: _Array, count: int) -> tuple[_Array, bytes] | None:
    """How long each text is, and the letters of all.

    A text of up to 31 bytes has one before it that says how many, which in ASCII no letter is like.
    """
    size = len(data) // count - 1
    if len(data) == count * (size + 1) and size < _LONG and (data[:: size + 1] == _HEAD + size).all():
        sizes, letters = np.full(count, size), data.reshape(count, size + 1)[:, 1:].tobytes()
    else:
        is_head = data >= _HEAD
        heads = np.flatnonzero(is_head)
        sizes = np.append(heads[1:], len(data)) - heads - 1
        if len(heads) != count or heads[0] or (data[heads] != _HEAD + sizes).any() or sizes.max() >= _LONG:
            return None
        letters = data[~is_head].tobytes()
    return (sizes, letters) if letters.isascii() else None


def _cut(columns: chunk.Columns, lo: int, hi: int) -> chunk.Columns:
    def part(column: Sequence[Any] | None) -> Sequence[Any] | None:
        return None if column is None else column[lo:hi]

    return chunk.Columns(
        b"\n".join(columns.lines()[lo:hi]),
        hi - lo,
        part(columns.keys),
        part(columns.ids),
        part(columns.times),
        part(columns.headers),
    )
