"""From a stream's definition to what Spark computes of the events of a cycle."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from penstock.core.errors import InvalidRequest
from penstock.engine.compile import exact
from penstock.engine.compile.aggregate_columns import ResultColumn, Shape, as_key, key_apart, result_columns, shape_of
from penstock.engine.compile.fold import fold_column, folded
from penstock.engine.compile.session_windows import Rules, with_sessions
from penstock.engine.worker.json_values import COST, SINK_KEY, WHOLE
from penstock.engine.worker.preaggregate import GROUPS
from penstock.engine.worker.read_config import ABOUT, DATA, META, Reading
from penstock.engine.worker.udf_stage import Stage, group_stages, wants_data
from penstock.stream.aggregates import Aggregate
from penstock.stream.definition import Definition
from penstock.stream.expression import is_python, names_in, takes_context
from penstock.stream.gates import Concurrency, Gate
from penstock.stream.sql.select_rules import with_columns
from penstock.stream.steps import Filter, FlatMap, Lookup, Map, Sql, Step, makes_columns, runs_in_python
from penstock.stream.windows import Calendar, Session, Sliding, Tumbling, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_META = list(META.names)
#: Where an event's own key goes when callables compute one.
KEY_FIELD = "__key_of"
_CLOCK_US = {"minute": 60_000_000, "hour": 3_600_000_000}


@dataclass(frozen=True)
class Split:
    """A stream cut where Spark begins: callables that run while reading, and the rest."""

    stream: Definition
    first: tuple[Step, ...]
    rest: tuple[Step | Stage, ...]
    #: Whether whole events are wanted after the reader.
    with_data: bool

    @property
    def keeps_event(self) -> bool:
        """Whether what comes out at the end is a whole event, and not columns that something made."""
        after = list(self.rest)
        while any(isinstance(step, Stage) for step in after):
            after.pop(0)
        return not any(makes_columns(step) for step in after if not isinstance(step, Stage))

    @property
    def with_about(self) -> bool:
        """Whether a callable after the reader asks what is known of an event."""
        return any(isinstance(step, Stage) and step.asks for step in self.rest)

    def parts(self) -> list[tuple[Stage | None, list[Step]]]:
        """The steps that Spark runs after each Python stage; None stands for the reader."""
        found: list[tuple[Stage | None, list[Step]]] = [(None, [])]
        for step in self.rest:
            if isinstance(step, Stage):
                found.append((step, []))
            else:
                found[-1][1].append(step)
        return found


def split(stream: Definition) -> Split:
    """Cut the stream, with every callable that stands for a value made a step of its own."""
    stream = _with_values(stream)
    if stream.windows and not (stream.sink_key is None or is_python(stream.sink_key)):
        named = set(stream.outputs) or {"key", "window_start", "window_end", "value", *stream.aggregates}
        if stream.sink_key not in named:
            raise InvalidRequest(
                "the key of a closed window is one of its fields, or what a function makes of them: "
                ".to(queue, partition='count') or .to(queue, partition=lambda window: ...)"
            )
    place = 0
    while place < len(stream.steps) and runs_in_python(stream.steps[place]):
        place += 1
    whole = not stream.windows or stream.fold is not None
    rest = stream.steps[place:]
    return Split(stream, stream.steps[:place], group_stages(rest, whole), wants_data(rest, whole))


def _with_values(stream: Definition) -> Definition:
    """Functions that give a key or the argument of an aggregate become fields that a last step adds."""
    added: dict[str, Callable[..., Any]] = {}
    changes: dict[str, Any] = {}
    if is_python(stream.key):
        added[KEY_FIELD] = stream.key
        changes["key"] = KEY_FIELD
    if is_python(stream.sink_key) and not stream.windows:
        added[SINK_KEY] = stream.sink_key
        changes["sink_key"] = SINK_KEY
    gates: list[Gate] = []
    for place, gate in enumerate(stream.gates):
        if is_python(gate.cost.expression) and not isinstance(gate, Concurrency):
            added[f"{COST}{place}"] = gate.cost.expression
            gate = dataclasses.replace(gate, cost=dataclasses.replace(gate.cost, expression=f"{COST}{place}"))
        gates.append(gate)
    aggregates: dict[str, Aggregate] = {}
    for place, (name, aggregate) in enumerate(stream.aggregates.items()):
        if is_python(aggregate.argument):
            added[f"__value_{place}"] = aggregate.argument
            aggregate = dataclasses.replace(aggregate, argument=f"__value_{place}")
        aggregates[name] = aggregate
    if not added:
        return stream
    step = Map("values", _Values(added))
    return dataclasses.replace(
        stream, steps=(*stream.steps, step), aggregates=aggregates, gates=tuple(gates), **changes
    )


class _Values:
    """Adds what some functions give to an event."""

    def __init__(self, functions: dict[str, Callable[..., Any]]) -> None:
        self._functions = [(name, function, takes_context(function)) for name, function in functions.items()]
        #: Whether one of them looks at the context.
        self.asks = any(with_context for _, _, with_context in self._functions)

    def __call__(self, event: Any, ctx: Any) -> dict[str, Any]:
        found = dict(event) if isinstance(event, dict) else {WHOLE: event}
        for name, function, with_context in self._functions:
            found[name] = function(event, ctx) if with_context else function(event)
        return found


def keys_of(stream: Definition) -> tuple[Any, ...]:
    """What the windows are kept by, each part of it; nothing, where it is the event's own key."""
    if stream.key is None:
        return ()
    return stream.key if isinstance(stream.key, tuple) else (stream.key,)


def fields_read(cut: Split, part: int = 0) -> list[str]:
    """The names that a part of the stream may mean by fields: what the reader, or the stage before it, has to give."""
    found: dict[str, None] = {}

    def mention(*expressions: Any) -> None:
        for expression in expressions:
            if expression is not None and not is_python(expression):
                found.update(dict.fromkeys(names_in(str(expression))))

    parts = cut.parts()
    for step in parts[part][1]:
        match step:
            case Map(expression=what) | FlatMap(expression=what) | Filter(condition=what):
                mention(what)
            case Sql(query=query):
                mention(query)
            case Lookup(on=on):
                found.update(dict.fromkeys(on))
    if part == len(parts) - 1:
        mention(*keys_of(cut.stream))
        if not cut.stream.windows:
            mention(cut.stream.sink_key)
        mention(*(gate.cost.expression for gate in cut.stream.gates))
        for aggregate in cut.stream.aggregates.values():
            mention(aggregate.argument)
    made = ("__value_", KEY_FIELD, SINK_KEY, COST)
    return [name for name in found if not name.startswith("__") or name.startswith(made)]


def numeric_names(stream: Definition) -> set[str]:
    """Fields that an aggregate adds up or that say what an event costs: numbers, whatever the sample says."""
    kinds = ("sum", "avg", "stddev", "percentile")
    costs = [gate.cost.expression for gate in stream.gates]
    return {cost.strip("` ") for cost in costs if isinstance(cost, str)} | {
        aggregate.argument.strip("` ")
        for aggregate in stream.aggregates.values()
        if aggregate.kind in kinds and isinstance(aggregate.argument, str)
    }


class Tables(Protocol):
    """What the steps need beside their events: the reference tables, and how the workers read and report."""

    @property
    def reading(self) -> Reading:
        """How the workers read."""

    def frame(self, spark: SparkSession, name: str, table: Any) -> DataFrame:
        """The table, as fresh as it asked to be."""


def apply_steps(frame: DataFrame, steps: Sequence[Step | Stage], tables: Tables) -> DataFrame:
    """The steps, each after the one before."""
    for step in steps:
        match step:
            case Stage():
                frame = step.apply(frame, tables.reading)
            case Filter(condition=condition):
                frame = frame.filter(exact.column(frame.sparkSession, condition))
            case Map(expression=expression):
                frame = _select(frame, expression)
            case FlatMap(expression=expression):
                frame = _explode(frame, expression)
            case Sql(query=query):
                frame = _run_sql(frame, step, query, tables)
            case Lookup():
                frame = _join(frame, step, tables)
            case _:
                raise TypeError(f"{type(step).__name__} does not run inside Spark")
    return frame


def _metas(frame: DataFrame) -> list[str]:
    return [name for name in (*_META, DATA, ABOUT) if name in frame.columns]


def _select(frame: DataFrame, expression: Any) -> DataFrame:
    metas = _metas(frame)
    if isinstance(expression, str):
        frame.createOrReplaceTempView("stream")
        query = f"SELECT {', '.join(metas)}, {expression} FROM stream"  # noqa: S608 - the user's own SQL
        return exact.rows(frame.sparkSession, query)
    return exact.select(frame, metas, expression)


def _explode(frame: DataFrame, expression: Any) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    metas = _metas(frame)
    column = exact.column(frame.sparkSession, expression)
    exploded = frame.select(*metas, F.explode(column).alias("value"))
    if isinstance(exploded.schema["value"].dataType, StructType):
        return exploded.select(*metas, "value.*")
    return exploded


def _run_sql(frame: DataFrame, step: Sql, query: str, tables: Tables) -> DataFrame:
    spark = frame.sparkSession
    frame.createOrReplaceTempView("stream")
    for name, table in step.tables.items():
        tables.frame(spark, name, table).createOrReplaceTempView(name)
    return exact.rows(spark, with_columns(query, _metas(frame)))


def _join(frame: DataFrame, step: Lookup, tables: Tables) -> DataFrame:
    from pyspark.sql import functions as F

    other = tables.frame(frame.sparkSession, step.name, step.table)
    return frame.join(F.broadcast(other), list(step.on), step.how)


@dataclass(frozen=True)
class Compiled:
    """What Spark computes of a cycle, and the columns of the result."""

    #: Of a cycle's events; the second argument says that they are one partition.
    transform: Callable[[DataFrame, bool], DataFrame]
    columns: list[ResultColumn]
    shape: Shape


def compile_windows(cut: Split, before: DataFrame, tables: Tables) -> Compiled:
    """Partials per key and window. ``before`` is a frame with the columns that the reader gives."""
    from pyspark.sql import functions as F

    stream = cut.stream
    probe = apply_steps(before, cut.rest, tables)
    arguments: dict[str, tuple[Column, str]] = {}
    for name, aggregate in stream.aggregates.items():
        if aggregate.argument is not None:
            value = exact.column(probe.sparkSession, aggregate.argument)
            arguments[name] = (value, probe.select(value.alias("v")).schema["v"].dataType.simpleString())
    columns = result_columns(stream.aggregates, arguments) if stream.fold is None else [fold_column()]
    shape = shape_of(stream, columns)
    keys = [exact.column(probe.sparkSession, expression) for expression in keys_of(stream)]
    key = key_text(probe, keys) if keys else F.col("__key")
    key = F.coalesce(key_apart(key) if stream.null_apart else key, F.lit(""))

    def transform(frame: DataFrame, single: bool) -> DataFrame:
        frame = apply_steps(frame, cut.rest, tables)
        frame = frame.withColumn("__k", key)
        groups = list(GROUPS)
        if isinstance(stream.windows[0], Session):
            rules = Rules(stream.windows[0].gap_us, stream.time.grace_us, stream.time.late)
            frame = with_sessions(frame, rules, tables.reading, single=single)
            groups += ["__old_ws", "__old_we", "__old_closed"]
        else:
            frame = _with_windows(frame, stream.windows)
            frame = _with_lateness(frame, stream)
        if stream.fold is not None:
            return folded(frame.drop("__newest"), stream.fold, tables.reading)
        return frame.groupBy(*groups).agg(
            F.max("__partition").alias("__p"),
            *[kept.partial.alias(kept.name) for result in columns for kept in result.kept],
        )

    return Compiled(transform, columns, shape)


def key_text(frame: DataFrame, keys: Sequence[Column]) -> Column:
    """What events are kept by, as text."""
    named = frame.select(*[key.alias(f"k{place}") for place, key in enumerate(keys)]).schema
    return as_key([(key, field.dataType.simpleString()) for key, field in zip(keys, named, strict=True)])


def _with_windows(frame: DataFrame, windows: Sequence[Window]) -> DataFrame:
    from pyspark.sql import functions as F

    if len(windows) == 1 and isinstance(windows[0], Tumbling):
        size = windows[0].size_us
        start = F.col("__time") - F.pmod(F.col("__time"), F.lit(size))
        return frame.withColumns({"__ws": start, "__we": start + size, "__newest": F.lit(True)})
    # A span that two windows have in common, as 10 s and 10 s every 5 s do, is one.
    spans = F.concat(*[_spans(window) for window in windows])
    frame = frame.withColumn("__spans", spans if len(windows) == 1 else F.array_distinct(spans))
    frame = frame.withColumns({"__span": F.explode("__spans"), "__last": F.array_max("__spans")})
    span = F.col("__span")
    parts = {"__ws": span["s"], "__we": span["e"], "__newest": span == F.col("__last")}
    return frame.withColumns(parts).drop("__spans", "__span", "__last")


def _spans(window: Window) -> Column:
    """The windows that an event counts in, each as its end and its start, so that the largest ends last."""
    from pyspark.sql import functions as F

    time = F.col("__time")
    match window:
        case Tumbling(size_us=size):
            start = time - F.pmod(time, F.lit(size))
            return F.array(F.struct((start + size).alias("e"), start.alias("s")))
        case Sliding(size_us=size, slide_us=slide):
            last = time - F.pmod(time, F.lit(slide))
            many = -(-size // slide)
            starts = F.array(*[last - i * slide for i in range(many)])
            spans = F.transform(starts, lambda s: F.struct((s + size).alias("e"), s.alias("s")))
            return F.filter(spans, lambda span: span["e"] > time)
        case Calendar(every=every, timezone=zone) if every in _CLOCK_US:
            # On clocks that are put forward or back by whole hours, an hour is an hour.
            size = _CLOCK_US[every]
            local = F.unix_micros(F.from_utc_timestamp(F.timestamp_micros(time), zone))
            start = time - F.pmod(local, F.lit(size))
            return F.array(F.struct((start + size).alias("e"), start.alias("s")))
        case Calendar(every=every, timezone=zone):
            local = F.date_trunc(every, F.from_utc_timestamp(F.timestamp_micros(time), zone))
            after = local + F.expr(f"INTERVAL 1 {every}")
            start, end = (F.unix_micros(F.to_utc_timestamp(t, zone)) for t in (local, after))
            return F.array(F.struct(end.alias("e"), start.alias("s")))
        case Session():
            raise TypeError("a session's span depends on what is open")


def _with_lateness(frame: DataFrame, stream: Definition) -> DataFrame:
    """Late events apart: as references to be dead-lettered or counted, or flagged to reopen their windows."""
    from pyspark.sql import functions as F

    late = F.col("__we") + stream.time.grace_us <= F.col("__bound")
    if stream.time.late == "include":
        nothing = F.lit(None).cast("bigint")
        return frame.withColumns({"__late": late, "__ref_p": nothing, "__ref_o": nothing})
    taken = ~late | F.col("__redriven")
    frame = frame.withColumn("__late", late).filter(taken | F.col("__newest"))
    return frame.withColumns(
        {
            "__ref_p": F.when(~taken, F.col("__partition")),
            "__ref_o": F.when(~taken, F.col("__offset")),
        }
    )


def compile_events(cut: Split, before: DataFrame, tables: Tables) -> Callable[[DataFrame, bool], DataFrame]:
    """The events that a stream without windows gives, one row each."""
    from pyspark.sql import functions as F

    sink_key: Any = cut.stream.sink_key
    stages = [step for step in cut.rest if isinstance(step, Stage)]
    given = tables.reading.fields.names if not stages else (stages[-1].fields or pa.schema([])).names

    def transform(frame: DataFrame, single: bool) -> DataFrame:
        frame = apply_steps(frame, cut.rest, tables)
        if sink_key is not None:
            key = exact.column(frame.sparkSession, sink_key)
            frame = frame.withColumn("__sink", key_text(frame, [key]))
        else:
            frame = frame.withColumn("__sink", F.col("__key"))
        costs: list[str] = []
        for place, gate in enumerate(cut.stream.gates):
            cost: Any = gate.cost.expression
            if cost is not None:
                costs.append(f"{COST}{place}")
                value = exact.column(frame.sparkSession, cost)
                frame = frame.withColumn(costs[-1], value.cast("double"))
        hidden = {*_META, "__sink", DATA, ABOUT, SINK_KEY, WHOLE, *costs}
        data: list[str] = []
        if cut.keeps_event and DATA in frame.columns:
            # The event as it is, and beside it what was looked up.
            data = [DATA]
            hidden |= set(given)
        fields = [f"`{name}`" for name in frame.columns if name not in hidden]
        return frame.select("__partition", "__offset", "__sink", *costs, *data, *fields)

    transform(before, True)  # what Spark does not understand is found now, and not in a cycle
    return transform
