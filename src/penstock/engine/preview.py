"""Looking at a stream without running it: its steps, Spark's plan, and what it makes of the newest events."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from psycopg.rows import dict_row
from py4j.protocol import Py4JJavaError
from pyspark.accumulators import Accumulator, AddingAccumulatorParam
from pyspark.errors import PySparkException

from penstock.core.errors import SparkFailure
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.db.sync import connect_plainly
from penstock.engine.arrow_csv import as_csv
from penstock.engine.compile.compile import Compiled, Split, compile_events, compile_windows, split
from penstock.engine.compile.schema_inference import SAMPLE, resolve_fields, resolve_stages
from penstock.engine.cycle.partials import Closing, staged
from penstock.engine.driver.event_loop import Background
from penstock.engine.joins.inputs import prepare_sides, side_streams
from penstock.engine.reference_tables import ReferenceTables
from penstock.engine.result_tables import ResultTables
from penstock.engine.spark.errors import first_line, understood
from penstock.engine.spark.session import session_beside, spark_session
from penstock.engine.worker.json_values import plain
from penstock.engine.worker.read_config import Reading
from penstock.engine.worker.reader import Reader, columns_of
from penstock.engine.worker.udf import Failure
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.stream.fingerprint import describe
from penstock.stream.steps import Foreach

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.stream.definition import Definition

#: From a warning to who asked for a preview.
_CALLER = 4


def explain(stream: Definition, settings: Settings) -> str:
    """The steps in words, and the plan that Spark makes of them."""
    with _look(stream, settings, SAMPLE, runs=False) as look:
        plan = str(look.frame._jdf.queryExecution().executedPlan().toString())
    return "\n".join(["Steps:", *[f"  {line}" for line in describe(stream)], "", "Spark's plan:", plan])


def preview(stream: Definition, settings: Settings, newest: int) -> list[dict[str, Any]]:
    """What the stream makes of the newest events: rows of its result. Nothing is committed, and foreach not called."""
    with _look(_without_foreach(stream), settings, newest, runs=True) as look:
        table = look.frame.toArrow()
        _warn_of(look.failed)
        if look.compiled is not None:
            return _finished(table, look.compiled, look.conninfo)
    rows = table.drop_columns(["__partition", "__offset"]).to_pylist()
    return [plain({"key": row.pop("__sink"), **_decoded(row)}) for row in rows]


def _without_foreach(stream: Definition) -> Definition:
    stream.check()
    sides = stream.joined
    if sides is not None:
        sides = dataclasses.replace(sides, left=_quiet(sides.left), right=_quiet(sides.right))
    return dataclasses.replace(_quiet(stream), joined=sides)


def _quiet(stream: Definition) -> Definition:
    return dataclasses.replace(stream, steps=tuple(step for step in stream.steps if not isinstance(step, Foreach)))


def _finished(table: pa.Table, compiled: Compiled, conninfo: str) -> list[dict[str, Any]]:
    """Partials as PostgreSQL would show them, by way of a temporary table."""
    tables = ResultTables(0, "preview", compiled.columns, shape=compiled.shape)
    partials = staged(table, [kept.name for kept in tables.kept], Closing.TOGETHER)
    with connect_plainly(conninfo, "preview") as conn, conn.transaction():
        conn.execute(tables.statement("stage"))
        with conn.cursor().copy(tables.statement("copy")) as copy:
            copy.write(as_csv(partials.table))
        shown = conn.cursor(row_factory=dict_row).execute(tables.statement("show"))
        return [plain(row) for row in shown.fetchall()]


def _decoded(row: dict[str, Any]) -> dict[str, Any]:
    from penstock.core import json
    from penstock.engine.worker.read_config import DATA

    if DATA not in row:
        return row
    value = json.decode(row[DATA])
    return value if isinstance(value, dict) else {"value": value}


def _warn_of(failed: Accumulator[list[Failure]]) -> None:
    """Tell of the events that fail; not in the log: what an error says may quote an event."""
    # PySpark remembers every accumulator for ever.
    failures, failed.value = failed.value, []
    if failures:
        first = failures[0]
        places = {(each.partition, each.offset) for each in failures}
        warnings.warn(
            f"{len(places)} of the newest events would be dead letters and are left out. "
            f"The first, of stage {first.stage!r}: {first.error}",
            stacklevel=_CALLER,
        )


@dataclass(frozen=True)
class _Look:
    """What the newest events come to, once Spark computes it."""

    frame: DataFrame
    #: Of a stream with windows: how partials become rows.
    compiled: Compiled | None
    conninfo: str
    failed: Accumulator[list[Failure]]


@contextmanager
def _look(stream: Definition, settings: Settings, newest: int, *, runs: bool) -> Iterator[_Look]:
    """What the newest events come to, while the database is open; or only how that would be found, if nothing runs."""
    background = Background("penstock preview")
    log = Log(Database(settings))
    try:
        background.run(log.open())
        sample = background.run(_newest(log, stream, newest))
        with understood():
            yield _computed(stream, sample, log.database.conninfo, runs)
    except (PySparkException, Py4JJavaError) as error:
        raise SparkFailure(f"Spark could not compute the newest events: {first_line(error)}") from error
    finally:
        background.run(log.close())
        background.close()


async def _newest(log: Log, stream: Definition, newest: int) -> list[Event]:
    found = [event for queue in stream.sources for event in await log.browse(queue, limit=newest)]
    return list(reversed(found))


def _computed(stream: Definition, sample: Sequence[Event], conninfo: str, runs: bool) -> _Look:
    spark = session_beside(spark_session())
    failed: Accumulator[list[Failure]] = spark.sparkContext.accumulator([], AddingAccumulatorParam([]))
    cut = split(stream)
    if stream.joined is not None:
        base = Reading(conninfo, 0, "preview", pa.schema([]), {}, None, 0, (), cut.with_data, failed=failed)
        return _Look(_joined(stream, cut, sample, base, spark, runs), None, conninfo, failed)
    fields, _ = resolve_fields(spark, cut, {}, sample)
    rules = stream.time
    event_time = rules.event_time if stream.windows else None
    reading = Reading(
        conninfo,
        0,
        "preview",
        fields,
        dict(enumerate(stream.sources)),
        event_time,
        rules.lateness_us,
        cut.first,
        cut.with_data,
        with_about=cut.with_about,
        failed=failed,
    )
    tables = ReferenceTables(conninfo, reading)
    frame = spark.createDataFrame(columns_of(spark, reading, sample)) if runs else Reader(reading).frame(spark, 1)
    cut, _ = resolve_stages(cut, frame, tables, {}, sample)
    if stream.windows:
        compiled = compile_windows(cut, frame, tables)
        return _Look(compiled.transform(frame.coalesce(1), True), compiled, conninfo, failed)
    return _Look(compile_events(cut, frame, tables)(frame.coalesce(1), True), None, conninfo, failed)


def _joined(
    stream: Definition, cut: Split, sample: Sequence[Event], base: Reading, spark: SparkSession, runs: bool
) -> DataFrame:
    """The pairs among the newest events of both sides."""
    assert stream.joined is not None  # noqa: S101 - the caller looked
    sides = side_streams(stream, stream.joined)
    samples = [[event for event in sample if event.queue in side.sources] for side in sides]
    reader, references, _ = prepare_sides(spark, stream, cut, base, samples, {}, [{}, {}])
    frame = reader.of_samples(spark) if runs else reader.frame(spark, 1)
    return compile_events(cut, frame, references)(frame, True)
