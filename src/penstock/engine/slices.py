"""In a Spark worker: the chunks of a task, as PostgreSQL has them, cut to the offsets that are wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg

from penstock.core.errors import CorruptChunk
from penstock.db.arrays import numbers
from penstock.db.statements import Statements
from penstock.engine.callables import Failure
from penstock.engine.moments import EPOCH, NEVER
from penstock.engine.plan import Lane
from penstock.engine.workers import asking
from penstock.log import chunk
from penstock.log.dead import DAMAGED
from penstock.log.reader import named

_read = Statements("penstock.log", "read.sql")
#: Rows that are taken over at a time, where the client's library can: one by one, each has its price.
_ROWS = 32 if psycopg.capabilities.has_stream_chunked() else 1


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
            seen.last = micros = (appended_at - EPOCH) // timedelta(microseconds=1)
            seen.first = seen.first or micros
            if target is not None and target != lane.group_id:
                continue  # sent back to another group alone
            seen.events += last - first
            try:
                columns = chunk.decode(body, count)
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
