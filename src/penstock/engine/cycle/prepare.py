"""What is done before the first cycle: types, Spark's plan, tables. A standby has done it before it is needed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from penstock.core.errors import Conflict, InvalidRequest
from penstock.engine.compile.compile import Split, compile_events, compile_windows, fields_read, split
from penstock.engine.compile.schema_inference import SAMPLE, resolve_fields, resolve_stages
from penstock.engine.cycle.partials import Closing
from penstock.engine.joins.inputs import SIDES, AllReferences, PairReader, prepare_sides, side_streams
from penstock.engine.joins.state import WaitingTable
from penstock.engine.options import RunOptions
from penstock.engine.reference_tables import ReferenceTables
from penstock.engine.registry import Registry
from penstock.engine.result_tables import ResultTables
from penstock.engine.spark.errors import understood
from penstock.engine.worker.preaggregate import Combining, combining_of
from penstock.engine.worker.read_config import Reading
from penstock.engine.worker.reader import Reader
from penstock.log.log import Log
from penstock.stream.windows import Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.stream.definition import Definition

_Answer = TypeVar("_Answer")

#: Queue name, queue id, group name and id of what is read.
Groups = list[tuple[str, int, str, int]]


class NothingYet(Exception):
    """There is no event that shows the types of what is read, and no more time to wait for one."""


@dataclass(frozen=True)
class Assignment:
    """What is to run, and where: the same whoever drives it."""

    id: int
    name: str
    stream: Definition
    cut: Split
    options: RunOptions
    log: Log
    registry: Registry
    spark: SparkSession
    #: The loop on which the log is open.
    loop: Callable[[Coroutine[Any, Any, Any]], Any]

    def run(self, coroutine: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Run a coroutine on the log's loop, and wait for its answer."""
        answer: _Answer = self.loop(coroutine)
        return answer


@dataclass
class Prepared:
    """A stream as Spark can run it, cycle by cycle, for any driver."""

    #: The types of the fields, as the catalog knew them when this was made.
    types: dict[str, str] | None
    groups: Groups
    reader: Reader | PairReader
    #: The events of a cycle that one task reads, and what the stream makes of events.
    small: DataFrame
    transform: Callable[[DataFrame, bool], DataFrame]
    references: ReferenceTables | AllReferences
    tables: ResultTables | None
    closing: Closing
    #: The state of a join of streams.
    waiting: WaitingTable | None = None
    #: What tasks add up by themselves, and the driver for all of them.
    combining: Combining | None = None
    #: What computes a small cycle, if it can be run more than once.
    small_plan: DataFrame | None = None

    def close(self) -> None:
        """Let go of what the reference tables hold."""
        self.references.close()


def prepare(assignment: Assignment, known: dict[str, str] | None, wait: Callable[[], bool] | None) -> Prepared:
    """Find the types, compile the stream and make its tables.

    ``wait`` is asked while there is no event that shows the types, and says whether to look again; None: who prepares
    only stands by, and takes down no types.
    """
    with understood():
        return _prepare(assignment, known, wait)


def _prepare(assignment: Assignment, known: dict[str, str] | None, wait: Callable[[], bool] | None) -> Prepared:
    stream, cut, spark = assignment.stream, assignment.cut, assignment.spark
    groups = assignment.run(_subscribe(assignment))
    if stream.joined is not None:
        return _prepare_join(assignment, known, wait, groups)
    sample = _sample(assignment, known, wait)
    schema, types = resolve_fields(spark, cut, known or {}, sample)
    conninfo = assignment.log.database.conninfo
    reading = Reading(
        conninfo,
        assignment.id,
        assignment.name,
        schema,
        {queue_id: queue for queue, queue_id, _, _ in groups},
        stream.time.event_time if stream.windows else None,
        stream.time.lateness_us,
        cut.first,
        cut.with_data,
        with_about=cut.with_about,
    )
    reader = Reader(reading)
    small = reader.frame(spark, 1)
    references = ReferenceTables(conninfo, reading)
    cut, of_stages = resolve_stages(cut, small, references, known or {}, sample)
    if sample and wait is not None:
        types.update(of_stages)
        assignment.run(assignment.registry.set_fields(assignment.id, types))
        known = {**types, **(known or {})}
    tables: ResultTables | None = None
    combining: Combining | None = None
    if stream.windows:
        compiled = compile_windows(cut, small, references)
        transform = compiled.transform
        combining = combining_of(cut.stream, schema, cut.rest)
        if combining is not None:
            reader = Reader(dataclasses.replace(reading, combining=combining))
            small = reader.frame(spark, 1)
            transform = _as_it_is
        key_name = _key_name(stream, assignment.options.key_name)
        by_key = isinstance(stream.windows[0], Session)
        tables = ResultTables(assignment.id, assignment.name, compiled.columns, key_name, by_key, compiled.shape)
        assignment.run(assignment.registry.make_tables(tables))
    else:
        transform = compile_events(cut, small, references)
    closing = assignment.run(_closing(assignment, groups))
    return Prepared(known, groups, reader, small, transform, references, tables, closing, combining=combining)


def _as_it_is(frame: DataFrame, single: bool) -> DataFrame:
    return frame


def _prepare_join(
    assignment: Assignment, known: dict[str, str] | None, wait: Callable[[], bool] | None, groups: Groups
) -> Prepared:
    stream, cut, spark = assignment.stream, assignment.cut, assignment.spark
    assert stream.joined is not None  # noqa: S101 - the caller looked
    sides = side_streams(stream, stream.joined)
    samples = _samples(assignment, sides, known, wait)
    conninfo = assignment.log.database.conninfo
    queues = {queue_id: queue for queue, queue_id, _, _ in groups}
    base = Reading(conninfo, assignment.id, assignment.name, pa.schema([]), queues, None, 0, (), cut.with_data)
    by_side = [{i: name for i, name in queues.items() if name in side.sources} for side in sides]
    reader, references, types = prepare_sides(spark, stream, cut, base, samples, known or {}, by_side)
    if types and wait is not None:
        assignment.run(assignment.registry.set_fields(assignment.id, types))
        known = {**types, **(known or {})}
    waiting = reader.waiting
    assignment.run(assignment.registry.make_waiting(waiting))
    small = reader.frame(spark, 1)
    transform = compile_events(cut, small, references)
    return Prepared(known, groups, reader, small, transform, references, None, Closing.TOGETHER, waiting)


def _samples(
    assignment: Assignment,
    sides: Sequence[Definition],
    known: dict[str, str] | None,
    wait: Callable[[], bool] | None,
) -> list[list[Any]]:
    """The newest events of each side; waits for the first of each, if it takes one to know the types."""
    while True:
        samples = [assignment.run(_newest(assignment, side.sources)) for side in sides]
        missing = [
            name
            for name, side, sample in zip(SIDES, sides, samples, strict=True)
            if not sample and not _is_declared(name, side, known)
        ]
        # What is not there is not read either, where only what is there is read.
        if not missing or (assignment.options.available_now and any(samples)):
            return samples
        if wait is None or not wait():
            raise NothingYet


def _is_declared(name: str, side: Definition, known: dict[str, str] | None) -> bool:
    """Whether the types of a side need no event to show them."""
    if any(field.startswith(f"{name}.") for field in known or {}):
        return True
    wanted = set(fields_read(split(side)))
    if isinstance(side.time.event_time, str):
        wanted.add(side.time.event_time.split(".")[0])
    return wanted <= side.schema.keys()


async def _subscribe(assignment: Assignment) -> Groups:
    """A group of the query's own in each queue that it reads."""
    found = []
    for name in assignment.stream.sources:
        queue = await assignment.log.catalog.refresh(name)
        group = await assignment.log.group_book.subscribe(
            queue,
            assignment.name,
            assignment.options.subscription_from,  # type: ignore[arg-type]  # checked there
            query_id=assignment.name,
        )
        if group.query_id != assignment.name:
            raise Conflict(
                f"queue {name!r} has a group {assignment.name!r} already, of consumers; give the query another id"
            )
        found.append((name, queue.id, assignment.name, group.id))
    return found


async def _closing(assignment: Assignment, groups: Groups) -> Closing:
    stream = assignment.stream
    if not stream.windows:
        return Closing.BY_PARTITION
    if stream.key is not None or len(groups) > 1:
        return Closing.TOGETHER
    queue = await assignment.log.catalog.get(groups[0][0])
    # In a queue by key, they have a partition of their own.
    return Closing.BY_PARTITION if queue.partition_count is None else Closing.KEYLESS_TOGETHER


def _sample(assignment: Assignment, known: dict[str, str] | None, wait: Callable[[], bool] | None) -> list[Any]:
    """The newest events; waits for the first if it takes one to know the types."""
    cut = assignment.cut
    sources = assignment.stream.sources
    sample = assignment.run(_newest(assignment, sources))
    if not fields_read(cut) and not isinstance(cut.stream.time.event_time, str):
        return sample
    while not sample and not known:
        if wait is None or not wait():
            # Types that are guessed now would be the types of the tables, and wrong for what comes later.
            raise NothingYet
        sample = assignment.run(_newest(assignment, sources))
    return sample


async def _newest(assignment: Assignment, sources: Sequence[str]) -> list[Any]:
    events: list[Any] = []
    for queue in sources:
        events += await assignment.log.browse(queue, limit=SAMPLE)
    return events


def _key_name(stream: Definition, given: str | None) -> str | None:
    """A second name of the key in the views: the one that was given, or that of the field that it is."""
    taken = {"key", "window_start", "window_end", "updated_at", "is_open", "revision", "value", *stream.aggregates}
    if given is not None and given in taken:
        raise InvalidRequest(f"key_name={given!r} is a column of the views already; choose another")
    if given is not None:
        return given
    key = stream.key
    if not isinstance(key, str) or not key.isidentifier() or key.startswith("__"):
        return None
    return None if key in taken or key in stream.outputs else key
