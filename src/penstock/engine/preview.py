"""Preview and explain a stream without running it."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from psycopg import sql
from psycopg.rows import dict_row
from py4j.protocol import Py4JJavaError
from pyspark.accumulators import Accumulator, AddingAccumulatorParam
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.core import json
from penstock.core.errors import InvalidRequest, SparkFailure
from penstock.core.event_loop import EventLoopThread
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.db.statements import Statements
from penstock.db.sync_connection import connect_for_user_sql
from penstock.engine.compile.referenced_fields import stored_fields
from penstock.engine.compile.schema.field_types import is_time_only, resolve_fields, resolve_udf_stages
from penstock.engine.compile.schema.sample import SAMPLE_SIZE
from penstock.engine.compile.split_stream import SplitStream, split_stream
from penstock.engine.compile.stream_without_windows import compile_events
from penstock.engine.compile.windows.window_assignment import CompiledWindows, compile_windows
from penstock.engine.cycle.partials import WatermarkScope, split_result
from penstock.engine.joins.join_inputs import input_streams
from penstock.engine.joins.join_setup import prepare_join
from penstock.engine.query_registry import Registry
from penstock.engine.reference_tables import ReferenceTables
from penstock.engine.results.arrow_csv import to_csv
from penstock.engine.results.result_tables import ResultTables
from penstock.engine.source_views import resolve_views
from penstock.engine.spark.errors import error_summary, stream_errors
from penstock.engine.spark.functions import register_functions
from penstock.engine.spark.spark_session import new_session, spark_session
from penstock.engine.state.operator_state import StateConfig
from penstock.engine.views.compile.spark_relation import quoted
from penstock.engine.views.view_inputs import ChangesInput, prepare_input, with_changes_schemas
from penstock.engine.views.view_reader import ViewReader
from penstock.engine.worker.event_reader import EventReader, decode_events
from penstock.engine.worker.json_values import to_json_value
from penstock.engine.worker.read_config import EMPTY_SCHEMA, EVENT_JSON, ReadConfig
from penstock.engine.worker.task_reports import EventFailure
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.stream.definition import Definition
from penstock.stream.fingerprint import describe
from penstock.stream.steps import ForeachStep
from penstock.stream.views.view import MaterializedView

_sql = Statements("penstock.engine", "preview.sql")

#: The stack level of the caller of ``Stream.preview``, for warnings.
_CALLER_LEVEL = 4


def explain(stream: Definition, settings: Settings) -> str:
    """Describe the steps of a stream, followed by Spark's plan."""
    with _open_preview(_complete(stream), settings, SAMPLE_SIZE, runs=False) as opened:
        plan = str(opened.frame._jdf.queryExecution().executedPlan().toString())
    return "\n".join(["Steps:", *[f"  {line}" for line in describe(opened.stream)], "", "Spark's plan:", plan])


def preview(stream: Definition, settings: Settings, newest: int) -> list[dict[str, Any]]:
    """Return the rows that the stream computes from the newest events. Nothing is committed, foreach is not called."""
    with _open_preview(_without_foreach(_complete(stream)), settings, newest, runs=True) as opened:
        table = opened.frame.toArrow()
        _warn_of_failures(opened.failures)
        if opened.windows is not None:
            return _merge_partials(table, opened.windows, opened.conninfo)
        if stream.view is not None:
            return [to_json_value(row) for row in table.to_pylist()]
    rows = table.drop_columns(["__partition", "__offset"]).to_pylist()
    return [to_json_value({"key": row.pop("__output_key"), **_output_fields(row)}) for row in rows]


def _complete(stream: Definition) -> Definition:
    """Return a stream that can run. While a stream is being written, its sink or what its window computes is missing.

    The preview of a window that computes nothing is that of its events.
    """
    if stream.view is not None:
        return stream
    if stream.windows and not stream.aggregates and stream.fold is None:
        stream = dataclasses.replace(stream, windows=())
    if not stream.windows:
        sink_key = stream.sink_key if isinstance(stream.key, tuple) else stream.sink_key or stream.key
        stream = dataclasses.replace(stream, key=None, sink=stream.sink or "preview", sink_key=sink_key)
    stream.check()
    return stream


def _without_foreach(stream: Definition) -> Definition:
    join = stream.joined
    if join is not None:
        join = dataclasses.replace(join, left=_drop_foreach(join.left), right=_drop_foreach(join.right))
    return dataclasses.replace(_drop_foreach(stream), joined=join)


def _drop_foreach(stream: Definition) -> Definition:
    return dataclasses.replace(stream, steps=tuple(step for step in stream.steps if not isinstance(step, ForeachStep)))


def _merge_partials(table: pa.Table, windows: CompiledWindows, conninfo: str) -> list[dict[str, Any]]:
    """Merge partial aggregates to the rows of the result, in a temporary table of PostgreSQL."""
    tables = ResultTables(0, "preview", windows.columns, output=windows.output)
    partials = split_result(table, [column.name for column in tables.state_columns], WatermarkScope.GLOBAL)
    with connect_for_user_sql(conninfo, "preview") as conn, conn.transaction():
        conn.execute(tables.statement("create_staging_table"))
        with conn.cursor().copy(tables.statement("copy_partials")) as copy:
            copy.write(to_csv(partials.table))
        rows = conn.cursor(row_factory=dict_row).execute(tables.statement("show_partials"))
        return [to_json_value(row) for row in rows.fetchall()]


def _output_fields(row: dict[str, Any]) -> dict[str, Any]:
    if EVENT_JSON not in row:
        return row
    value = json.decode(row[EVENT_JSON])
    return value if isinstance(value, dict) else {"value": value}


def _warn_of_failures(accumulator: Accumulator[list[EventFailure]]) -> None:
    """Warn of failed events. A warning and not a log message, because an error may quote an event."""
    # PySpark never drops an accumulator.
    failures, accumulator.value = accumulator.value, []
    if failures:
        first = failures[0]
        events = {failure.event for failure in failures}
        warnings.warn(
            f"{len(events)} of the newest events would be dead letters and are left out. "
            f"The first, of stage {first.stage!r}: {first.error}",
            stacklevel=_CALLER_LEVEL,
        )


@dataclass(frozen=True)
class _Preview:
    """The DataFrame that computes the result of the newest events."""

    #: The stream with the views of the database that it reads.
    stream: Definition
    frame: DataFrame
    #: None for a stream without windows.
    windows: CompiledWindows | None
    conninfo: str
    failures: Accumulator[list[EventFailure]]


@contextmanager
def _open_preview(stream: Definition, settings: Settings, newest: int, *, runs: bool) -> Iterator[_Preview]:
    """Open the database and compile the stream for its newest events. With ``runs``, the events are decoded."""
    event_loop = EventLoopThread("penstock preview")
    log = Log(Database(settings))
    try:
        event_loop.run(log.open())
        registry = Registry(log)
        stream = event_loop.run(resolve_views(log, registry, stream, ""))
        source_rows = event_loop.run(_source_rows(log, registry, stream, newest))
        sample = event_loop.run(_newest_events(log, stream, newest))
        with stream_errors(), ExitStack() as opened:
            yield _compile(stream, sample, log.database.conninfo, runs, source_rows, opened)
    except (PySparkException, Py4JJavaError) as error:
        raise SparkFailure(f"Spark could not compute the newest events: {error_summary(error)}") from error
    finally:
        event_loop.run(log.close())
        event_loop.close()


async def _newest_events(log: Log, stream: Definition, count: int) -> list[Event]:
    newest_first = [event for queue in stream.sources for event in await log.browse(queue, limit=count)]
    return newest_first[::-1]


class _SourceRows(NamedTuple):
    """Rows of a view that another view reads, in JSON, with the types of its columns."""

    types: Mapping[str, str]
    rows: Sequence[str]


async def _source_rows(log: Log, registry: Registry, stream: Definition, count: int) -> dict[str, _SourceRows]:
    """Return the rows that changed last of the views that a view reads."""
    found = {}
    for name in stream.view.source_views if stream.view is not None else ():
        source = await registry.source_view(name, "")
        if source is None:
            raise InvalidRequest(f"the view {name!r}, which this one reads, has no rows yet: run it, or preview it")
        async with log.database.connection() as conn:
            query = sql.SQL(_sql["newest_rows"]).format(view=sql.Identifier("penstock_live", name))
            rows = await (await conn.execute(query, [count])).fetchall()
        found[name] = _SourceRows(source.types, [text for (text,) in rows])
    return found


def _compile(
    stream: Definition,
    sample: Sequence[Event],
    conninfo: str,
    runs: bool,
    source_rows: Mapping[str, _SourceRows],
    opened: ExitStack,
) -> _Preview:
    spark = new_session(spark_session())
    register_functions(spark, stream.functions.values())
    failures: Accumulator[list[EventFailure]] = spark.sparkContext.accumulator([], AddingAccumulatorParam([]))
    if stream.view is not None:
        base = ReadConfig(conninfo, 0, "preview", EMPTY_SCHEMA, {}, None, 0, (), False, failed_events=failures)
        return _Preview(
            stream, _compile_view(stream.view, sample, base, spark, runs, source_rows, opened), None, conninfo, failures
        )
    split = split_stream(stream)
    if stream.joined is not None:
        base = ReadConfig(
            conninfo, 0, "preview", pa.schema([]), {}, None, 0, (), split.with_event_json, failed_events=failures
        )
        return _Preview(
            stream, _compile_join(stream, split, sample, base, spark, runs, opened), None, conninfo, failures
        )
    rules = stream.time
    event_time = rules.event_time if stream.windows else None
    config = ReadConfig(
        conninfo,
        0,
        "preview",
        EMPTY_SCHEMA,
        dict(enumerate(stream.sources)),
        event_time,
        rules.lateness_us,
        split.reader_steps,
        split.with_event_json,
        with_metadata=split.with_metadata,
        stored_fields=stored_fields(split),
        is_time_only=is_time_only(split),
        failed_events=failures,
    )
    tables = ReferenceTables(config)
    opened.callback(tables.close)
    fields, _ = resolve_fields(spark, split, tables, {}, sample)
    config = dataclasses.replace(config, fields=fields)
    tables = tables.with_config(config)
    frame = spark.createDataFrame(decode_events(spark, config, sample)) if runs else EventReader(config).frame(spark, 1)
    split, _ = resolve_udf_stages(split, frame, tables, {}, sample)
    if stream.windows:
        windows = compile_windows(split, frame, tables)
        return _Preview(stream, windows.transform(frame.coalesce(1), True), windows, conninfo, failures)
    return _Preview(stream, compile_events(split, frame, tables)(frame.coalesce(1), True), None, conninfo, failures)


def _compile_join(
    stream: Definition,
    split: SplitStream,
    sample: Sequence[Event],
    base: ReadConfig,
    spark: SparkSession,
    runs: bool,
    opened: ExitStack,
) -> DataFrame:
    assert stream.joined is not None  # noqa: S101 - the caller has checked
    inputs = input_streams(stream, stream.joined)
    samples = [[event for event in sample if event.queue in each.sources] for each in inputs]
    reader, references, _ = prepare_join(spark, stream, split, base, samples, {}, [{}, {}])
    opened.callback(references.close)
    frame = reader.sample_frame(spark) if runs else reader.frame(spark, 1)
    return compile_events(split, frame, references)(frame, True)


def _compile_view(
    view: MaterializedView,
    sample: Sequence[Event],
    base: ReadConfig,
    spark: SparkSession,
    runs: bool,
    source_rows: Mapping[str, _SourceRows],
    opened: ExitStack,
) -> DataFrame:
    view = with_changes_schemas(view, {name: source.types for name, source in source_rows.items()})
    frames = {}
    inputs = []
    references = ReferenceTables(base)
    opened.callback(references.close)
    for name, stream in view.inputs.items():
        config = dataclasses.replace(base, queues=dict(enumerate(stream.sources)))
        source = source_rows.get(name)
        types = None if source is None else source.types
        events = [event for event in sample if event.queue in stream.sources]
        each, _ = prepare_input(spark, config, view, name, events, {}, references, strict=False, view_types=types)
        inputs.append(each)
        if source is not None and isinstance(each, ChangesInput):
            frames[name] = each.frame_of_rows(spark, source.rows)
            continue
        decoded = spark.createDataFrame(decode_events(spark, each.read_config, events)) if runs else None
        frames[name] = each.frame(spark, 1) if decoded is None else each.apply_steps(decoded)
    reader = ViewReader(view.root, inputs, StateConfig(base.conninfo, 0), 1, False, references, view.references)
    relation = reader.compile(frames).relation
    return relation.frame.select(*map(quoted, relation.columns))
