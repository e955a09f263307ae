"""Prepares a query for its first cycle: field types, Spark plan and result tables.

A standby prepares the query before it takes over.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import DataFrame

from penstock.core.errors import Conflict, InvalidRequest
from penstock.engine.compile.preaggregation import plan_preaggregation
from penstock.engine.compile.referenced_fields import referenced_fields, stored_fields
from penstock.engine.compile.schema.field_types import is_time_only, resolve_fields, resolve_udf_stages
from penstock.engine.compile.schema.sample import SAMPLE_SIZE
from penstock.engine.compile.schema.unknown_fields import field_names
from penstock.engine.compile.split_stream import split_stream
from penstock.engine.compile.stream_without_windows import compile_events
from penstock.engine.compile.windows.window_assignment import compile_windows
from penstock.engine.cycle.cycle_result import QueryContext
from penstock.engine.cycle.partials import WatermarkScope
from penstock.engine.cycle_plan import SourceGroup
from penstock.engine.joins.join_inputs import SIDES, input_streams
from penstock.engine.joins.join_reader import JoinReader
from penstock.engine.joins.join_setup import prepare_join
from penstock.engine.joins.join_state import JoinState
from penstock.engine.query_registry import SourceView
from penstock.engine.reference_tables import ReferenceTables
from penstock.engine.results.result_tables import ResultTables
from penstock.engine.spark.errors import stream_errors
from penstock.engine.state.operator_state import StateConfig
from penstock.engine.views.operator_graph import operator_graph
from penstock.engine.views.view_inputs import has_known_types, prepare_input, with_changes_schemas
from penstock.engine.views.view_reader import VIEW_SHARDS, ViewReader, result_columns
from penstock.engine.views.view_size import ViewState
from penstock.engine.views.view_table import ViewTable
from penstock.engine.worker.event_reader import EventReader
from penstock.engine.worker.preaggregate import Preaggregation
from penstock.engine.worker.read_config import EMPTY_SCHEMA, ReadConfig
from penstock.log.event import Event
from penstock.stream.definition import Definition
from penstock.stream.views.describe import name_operators
from penstock.stream.views.view import MaterializedView, columns_read
from penstock.stream.windows import SessionWindow

#: Spark types by field name.
_FieldTypes = dict[str, str]


class NoSampleEvents(Exception):
    """No event has come from which the field types can be inferred."""


@dataclass
class PreparedQuery:
    """A query that is ready for cycles of any driver."""

    #: The field types that were stored when the query was prepared.
    types: _FieldTypes | None
    groups: Sequence[SourceGroup]
    reader: EventReader | JoinReader | ViewReader
    #: The events of a cycle that one task reads.
    small_frame: DataFrame
    #: The second argument is True if the events are one Spark partition.
    transform: Callable[[DataFrame, bool], DataFrame]
    references: ReferenceTables
    result_tables: ResultTables | None
    watermark_scope: WatermarkScope
    join_state: JoinState | None = None
    view_table: ViewTable | None = None
    preaggregation: Preaggregation | None = None
    #: The Spark plan of small cycles, if it can be run more than once.
    small_job: DataFrame | None = None
    #: The logical plan of other cycles, by the number of tasks that read the events.
    large_plans: dict[int, DataFrame] = field(default_factory=dict)

    def close(self) -> None:
        self.references.close()


def prepare_query(
    context: QueryContext, stored_types: _FieldTypes | None, wait: Callable[[], bool] | None
) -> PreparedQuery:
    """Resolve the field types, compile the stream and create its tables.

    While there is no event to infer types from, ``wait`` is called, and returns False to give up. None means that a
    standby prepares the query: it does not wait, and does not store types.
    """
    with stream_errors():
        if context.stream.view is not None:
            return _prepare_view(context, context.stream.view, stored_types, wait)
        groups = context.run(_subscribe(context, {}))
        if context.stream.joined is not None:
            return _prepare_join(context, stored_types, wait, groups)
        sample, is_strict = _read_sample(context, stored_types, wait)
        with stream_errors(field_names(event.raw for event in sample)):
            return _prepare_stream(context, stored_types, wait, groups, sample, is_strict)


def _prepare_stream(
    context: QueryContext,
    stored_types: _FieldTypes | None,
    wait: Callable[[], bool] | None,
    groups: Sequence[SourceGroup],
    sample: Sequence[Event],
    is_strict: bool,
) -> PreparedQuery:
    stream, split, spark = context.stream, context.split, context.spark
    conninfo = context.log.database.conninfo
    config = ReadConfig(
        conninfo,
        context.id,
        context.name,
        EMPTY_SCHEMA,
        {source.queue_id: source.queue for source in groups},
        stream.time.event_time if stream.windows else None,
        stream.time.lateness_us,
        split.reader_steps,
        split.with_event_json,
        with_metadata=split.with_metadata,
        stored_fields=stored_fields(split),
        is_time_only=is_time_only(split),
    )
    references = ReferenceTables(config)
    schema, types = resolve_fields(spark, split, references, stored_types or {}, sample, strict=is_strict)
    config = dataclasses.replace(config, fields=schema)
    references = references.with_config(config)
    reader = EventReader(config)
    frame = reader.frame(spark, 1)
    split, stage_types = resolve_udf_stages(split, frame, references, stored_types or {}, sample, strict=is_strict)
    if sample and wait is not None:
        stored_types = _store_types(context, {**types, **stage_types}, stored_types)
    result_tables: ResultTables | None = None
    preaggregation: Preaggregation | None = None
    if stream.windows:
        compiled = compile_windows(split, frame, references)
        transform = compiled.transform
        preaggregation = plan_preaggregation(split.stream, schema, split.spark_steps)
        if preaggregation is not None:
            reader = EventReader(dataclasses.replace(config, preaggregation=preaggregation))
            frame = reader.frame(spark, 1)
            transform = _unchanged
        result_tables = ResultTables(
            context.id,
            context.name,
            compiled.columns,
            key_column_name(stream, context.options.key_name),
            isinstance(stream.windows[0], SessionWindow),
            compiled.output,
            stream.windows,
            stream.time.idle_flush_us,
        )
        context.run(context.registry.create_tables(result_tables))
    else:
        transform = compile_events(split, frame, references)
    return PreparedQuery(
        stored_types,
        groups,
        reader,
        frame,
        transform,
        references,
        result_tables,
        context.run(_watermark_scope(context, groups)),
        preaggregation=preaggregation,
    )


def _unchanged(frame: DataFrame, is_single_partition: bool) -> DataFrame:
    return frame


def _prepare_join(
    context: QueryContext,
    stored_types: _FieldTypes | None,
    wait: Callable[[], bool] | None,
    groups: Sequence[SourceGroup],
) -> PreparedQuery:
    stream, split, spark = context.stream, context.split, context.spark
    assert stream.joined is not None  # noqa: S101 - the caller checked
    inputs = input_streams(stream, stream.joined)
    samples, is_strict = _read_join_samples(context, inputs, stored_types, wait)
    queues = {source.queue_id: source.queue for source in groups}
    config = ReadConfig(
        context.log.database.conninfo,
        context.id,
        context.name,
        EMPTY_SCHEMA,
        queues,
        event_time=None,
        lateness_us=0,
        steps=(),
        with_event_json=split.with_event_json,
    )
    input_queues = [
        {queue_id: name for queue_id, name in queues.items() if name in joined.sources} for joined in inputs
    ]
    with stream_errors(field_names(event.raw for sample in samples for event in sample)):
        reader, references, types = prepare_join(
            spark, stream, split, config, samples, stored_types or {}, input_queues, strict=is_strict
        )
    if types and wait is not None:
        stored_types = _store_types(context, types, stored_types)
    frame = reader.frame(spark, 1)
    transform = compile_events(split, frame, references)
    return PreparedQuery(
        stored_types,
        groups,
        reader,
        frame,
        transform,
        references,
        None,
        WatermarkScope.GLOBAL,
        join_state=reader.state,
    )


def _prepare_view(
    context: QueryContext,
    view: MaterializedView,
    stored_types: _FieldTypes | None,
    wait: Callable[[], bool] | None,
) -> PreparedQuery:
    spark, conninfo = context.spark, context.log.database.conninfo
    sources = _load_source_views(context, view, wait)
    # The changes of a view before it was started over are those of other rows.
    starts = {view.inputs[name].sources[0]: source.created_at for name, source in sources.items()}
    groups = context.run(_subscribe(context, starts))
    view_types = {name: source.types for name, source in sources.items()}
    view = with_changes_schemas(view, view_types)
    samples, is_strict = _read_view_samples(context, view, stored_types, wait)
    queues = {source.queue_id: source.queue for source in groups}
    config = ReadConfig(conninfo, context.id, context.name, EMPTY_SCHEMA, queues, None, 0, (), with_event_json=False)
    references = ReferenceTables(config)
    inputs, types = [], _FieldTypes()
    for name, sample in samples.items():
        with stream_errors(field_names(event.raw for event in sample)):
            view_input, inferred = prepare_input(
                spark,
                config,
                view,
                name,
                sample,
                stored_types or {},
                references,
                strict=is_strict,
                view_types=view_types.get(name),
            )
        inputs.append(view_input)
        types |= inferred
    if wait is not None and any(samples.values()):
        stored_types = _store_types(context, types, stored_types)
    ttl = view.state_ttl_seconds
    state = StateConfig(conninfo, context.id, ttl_us=0 if ttl is None else round(ttl * 1_000_000))
    has_changes = context.stream.sink is not None
    reader = ViewReader(view.root, inputs, state, VIEW_SHARDS, has_changes, references, view.references)
    (relation, stateful), frame = reader.compile_small(spark)
    table = ViewTable(
        context.id,
        context.name,
        result_columns(relation),
        relation.key,
        view.indexes,
        relation.is_append_only,
        operator_graph(view.root, stateful),
        columns_read(view.root),
        is_shown=not context.is_rebuild,
    )
    view_state = ViewState(name_operators(list(stateful.values())), view.state_ttl_seconds, view.max_state_bytes)
    context.run(context.registry.create_view_table(table, view_state))
    return PreparedQuery(
        stored_types,
        groups,
        reader,
        frame,
        _unchanged,
        references,
        None,
        WatermarkScope.PARTITION,
        view_table=table,
    )


def _load_source_views(
    context: QueryContext, view: MaterializedView, wait: Callable[[], bool] | None
) -> dict[str, SourceView]:
    """Return the views that a view reads; wait until they have been prepared, and have the columns that it reads."""
    found: dict[str, SourceView] = {}
    for name, columns in columns_read(view.root).items():
        while (source := context.run(context.registry.source_view(name, context.name))) is None or (
            missing := [column for column in columns if column not in source.types]
        ):
            if source is not None and not source.is_rebuilt:
                raise Conflict(
                    f"the view {name!r} has no column {missing[0]!r}, which {context.name!r} reads: start {name!r} "
                    "with its new definition and rebuild=True (--rebuild) first"
                )
            if wait is None or not wait():
                raise NoSampleEvents
        found[name] = source
    return found


def _read_view_samples(
    context: QueryContext,
    view: MaterializedView,
    stored_types: _FieldTypes | None,
    wait: Callable[[], bool] | None,
) -> tuple[dict[str, list[Event]], bool]:
    """Read the newest events of each input; wait for the first one of each if types have to be inferred.

    Also returns whether a field that no event of its sample has is refused, as :func:`_read_sample` does.
    """
    is_strict = context.options.strict and stored_types is None
    while True:
        samples = {name: context.run(read_newest(context, stream.sources)) for name, stream in view.inputs.items()}
        is_complete = all(sample or has_known_types(view, name, stored_types or {}) for name, sample in samples.items())
        if is_complete or (context.options.available_now and any(samples.values())):
            return samples, is_strict
        is_strict = False
        if wait is None or not wait():
            raise NoSampleEvents


def _store_types(context: QueryContext, types: _FieldTypes, stored_types: _FieldTypes | None) -> _FieldTypes:
    """Store inferred types, and return all types. Types that were stored before do not change."""
    context.run(context.registry.store_field_types(context.id, types))
    return {**types, **(stored_types or {})}


def _read_sample(
    context: QueryContext, stored_types: _FieldTypes | None, wait: Callable[[], bool] | None
) -> tuple[list[Event], bool]:
    """Read the newest events; wait for the first one if types have to be inferred.

    Also returns whether a field that no event of the sample has is refused. It is not if the query has been running
    before, or if the sample is only the first events of a queue.
    """
    split, sources = context.split, context.stream.sources
    sample = context.run(read_newest(context, sources))
    is_strict = context.options.strict and bool(sample) and stored_types is None
    if not referenced_fields(split).names and not isinstance(split.stream.time.event_time, str):
        return sample, is_strict
    while not sample and not stored_types:
        if wait is None or not wait():
            # Types that are assumed now would be those of the tables, and wrong for later events.
            raise NoSampleEvents
        sample = context.run(read_newest(context, sources))
    return sample, is_strict


def _read_join_samples(
    context: QueryContext,
    inputs: Sequence[Definition],
    stored_types: _FieldTypes | None,
    wait: Callable[[], bool] | None,
) -> tuple[list[list[Event]], bool]:
    """Read the newest events of each input; wait for the first one of each if types have to be inferred.

    Also returns whether a field that no event of its sample has is refused, as :func:`_read_sample` does.
    """
    is_strict = context.options.strict and stored_types is None
    while True:
        samples = [context.run(read_newest(context, joined.sources)) for joined in inputs]
        is_complete = all(
            sample or _has_known_types(name, joined, stored_types or {})
            for name, joined, sample in zip(SIDES, inputs, samples, strict=True)
        )
        # With available_now, an input without events stays without events.
        if is_complete or (context.options.available_now and any(samples)):
            return samples, is_strict
        is_strict = False
        if wait is None or not wait():
            raise NoSampleEvents


def _has_known_types(name: str, joined: Definition, stored_types: Mapping[str, str]) -> bool:
    """True if the types of a join input are stored or declared."""
    if any(field.startswith(f"{name}.") for field in stored_types):
        return True
    fields = set(referenced_fields(split_stream(joined)).names)
    if isinstance(joined.time.event_time, str):
        fields.add(joined.time.event_time.split(".")[0])
    return fields <= joined.schema.keys()


async def read_newest(context: QueryContext, sources: Sequence[str]) -> list[Event]:
    events: list[Event] = []
    for queue in sources:
        events += await context.log.browse(queue, limit=SAMPLE_SIZE)
    return events


async def _subscribe(context: QueryContext, starts: Mapping[str, datetime]) -> list[SourceGroup]:
    """Create the query's consumer group in each source queue. ``starts`` has the start of some queues."""
    groups = []
    for name in context.stream.sources:
        queue = await context.log.catalog.refresh(name)
        group = await context.log.consumer_groups.subscribe(
            queue,
            context.name,
            starts.get(name, context.options.subscription_from),  # type: ignore[arg-type]  # checked there
            query_id=context.name,
        )
        if group.query_id != context.name:
            raise Conflict(f"queue {name!r} already has a consumer group {context.name!r}; give the query another id")
        groups.append(SourceGroup(name, queue.id, context.name, group.id))
    return groups


async def _watermark_scope(context: QueryContext, groups: Sequence[SourceGroup]) -> WatermarkScope:
    stream = context.stream
    if not stream.windows:
        return WatermarkScope.PARTITION
    if stream.key is not None or len(groups) > 1:
        return WatermarkScope.GLOBAL
    queue = await context.log.catalog.get(groups[0].queue)
    # In a queue with a partition per key, events without a key have a partition of their own.
    return WatermarkScope.PARTITION if queue.partition_count is None else WatermarkScope.KEYLESS_GLOBAL


def key_column_name(stream: Definition, option: str | None) -> str | None:
    """A second name of the key in the views: the ``key_name`` option, or the field that is the key."""
    taken = {"key", "window_start", "window_end", "updated_at", "is_open", "revision", "value", *stream.aggregates}
    if option is not None and option in taken:
        raise InvalidRequest(f"key_name={option!r} is already a column of the views; choose another name")
    if option is not None:
        return option
    key = stream.key
    if not isinstance(key, str) or not key.isidentifier() or key.startswith("__"):
        return None
    return None if key in taken or key in stream.outputs else key
