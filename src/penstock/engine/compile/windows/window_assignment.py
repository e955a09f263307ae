"""Compiles a windowed stream: Spark assigns events to windows and computes partial aggregates per key and window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.engine.compile import exact_decimals
from penstock.engine.compile.key_text import distinguish_empty_key, to_key
from penstock.engine.compile.referenced_fields import key_expressions
from penstock.engine.compile.spark_steps import apply_steps
from penstock.engine.compile.split_stream import SplitStream
from penstock.engine.compile.windows.aggregate_columns import AggregateArgument, ResultColumn, result_columns
from penstock.engine.compile.windows.fold import apply_fold, fold_column
from penstock.engine.compile.windows.session_windows import assign_sessions
from penstock.engine.compile.windows.window_output import WindowOutput, window_output
from penstock.engine.reference_tables import ReferenceTables
from penstock.engine.worker.preaggregate import GROUP_COLUMNS
from penstock.stream.definition import Definition
from penstock.stream.windows import (
    CALENDAR_MONTHS,
    CalendarWindow,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    Window,
)

_CLOCK_US = {"minute": 60_000_000, "hour": 3_600_000_000}


@dataclass(frozen=True)
class CompiledWindows:
    #: From a cycle's events to partial aggregates. The second argument is True if the events are one Spark partition.
    transform: Callable[[DataFrame, bool], DataFrame]
    columns: list[ResultColumn]
    output: WindowOutput


def compile_windows(split: SplitStream, events: DataFrame, references: ReferenceTables) -> CompiledWindows:
    """Compile a stream with windows. ``events`` is a frame with the columns that the reader returns."""

    stream = split.stream
    probe = apply_steps(events, split.spark_steps, references)
    arguments: dict[str, AggregateArgument] = {}
    for name, aggregate in stream.aggregates.items():
        if aggregate.argument is not None:
            value = exact_decimals.column(probe.sparkSession, aggregate.argument)
            spark_type = probe.select(value.alias("v")).schema["v"].dataType.simpleString()
            arguments[name] = AggregateArgument(value, spark_type)
    columns = result_columns(stream.aggregates, arguments) if stream.fold is None else [fold_column()]
    output = window_output(stream, columns)
    keys = [exact_decimals.column(probe.sparkSession, expression) for expression in key_expressions(stream)]
    key = to_key(probe, keys) if keys else F.col("__key")
    key = F.coalesce(distinguish_empty_key(key) if stream.distinguishes_null_key else key, F.lit(""))

    def transform(frame: DataFrame, is_single_partition: bool) -> DataFrame:
        frame = apply_steps(frame, split.spark_steps, references)
        frame = frame.withColumn("__group_key", key)
        groups = list(GROUP_COLUMNS)
        if isinstance(stream.windows[0], SessionWindow):
            gap_us, config = stream.windows[0].gap_us, references.read_config
            frame = assign_sessions(frame, gap_us, stream.time, config, is_single_partition=is_single_partition)
            groups += ["__old_start", "__old_end", "__old_is_closed"]
        else:
            frame = _assign_windows(frame, stream.windows)
            frame = _mark_late_events(frame, stream)
        if stream.fold is not None:
            return apply_fold(frame.drop("__is_last_window"), stream.fold, references.read_config)
        return frame.groupBy(*groups).agg(
            F.max("__partition").alias("__window_partition"),
            *[partial for column in columns for state in column.state for partial in state.spark_columns],
        )

    return CompiledWindows(transform, columns, output)


def _assign_windows(frame: DataFrame, windows: Sequence[Window]) -> DataFrame:
    """One row for each event and window."""

    if len(windows) == 1 and isinstance(windows[0], TumblingWindow):
        size = windows[0].size_us
        start = F.col("__time") - F.pmod(F.col("__time"), F.lit(size))
        return frame.withColumns(
            {"__window_start": start, "__window_end": start + size, "__is_last_window": F.lit(True)}
        )
    # Two kinds of windows can share a window: 10 s, and 10 s every 5 s.
    every = F.concat(*[_windows_of_event(window) for window in windows])
    frame = frame.withColumn("__windows", every if len(windows) == 1 else F.array_distinct(every))
    frame = frame.withColumns({"__window": F.explode("__windows"), "__last_window": F.array_max("__windows")})
    window = F.col("__window")
    columns = {
        "__window_start": window["start"],
        "__window_end": window["end"],
        "__is_last_window": window == F.col("__last_window"),
    }
    return frame.withColumns(columns).drop("__windows", "__window", "__last_window")


def _windows_of_event(window: Window) -> Column:
    """The windows that an event belongs to. The end comes first, so that the greatest struct is the last window."""

    time = F.col("__time")
    match window:
        case TumblingWindow(size_us=size):
            start = time - F.pmod(time, F.lit(size))
            return F.array(_window_struct(start, start + size))
        case SlidingWindow(size_us=size, slide_us=slide):
            last = time - F.pmod(time, F.lit(slide))
            starts = F.array(*[last - i * slide for i in range(-(-size // slide))])
            windows = F.transform(starts, lambda start: _window_struct(start, start + size))
            return F.filter(windows, lambda struct: struct["end"] > time)
        case CalendarWindow(every=every, timezone=zone) if every in _CLOCK_US:
            # Clock changes are whole hours, so an hour always has the same length.
            size = _CLOCK_US[every]
            local = F.unix_micros(F.from_utc_timestamp(F.timestamp_micros(time), zone))
            start = time - F.pmod(local, F.lit(size))
            return F.array(_window_struct(start, start + size))
        case CalendarWindow(every=every) if every in CALENDAR_MONTHS:
            return F.array(_months_of_event(window, time))
        case CalendarWindow(every=every, timezone=zone):
            local = F.date_trunc(every, F.from_utc_timestamp(F.timestamp_micros(time), zone))
            local_end = local + F.expr(f"INTERVAL 1 {every}")
            start, end = (F.unix_micros(F.to_utc_timestamp(t, zone)) for t in (local, local_end))
            return F.array(_window_struct(start, end))
        case SessionWindow():
            raise TypeError("sessions depend on the open sessions and are assigned by assign_sessions")


def _months_of_event(window: CalendarWindow, time: Column) -> Column:
    """The month, quarter or year of an event. Months are counted from the year 0."""

    def boundary(month: Column) -> Column:
        first = F.make_date(F.floor(month / 12).cast("int"), F.pmod(month, F.lit(12)) + 1, F.lit(1))
        return F.least(F.date_add(first, window.anchor_day - 1), F.last_day(first))

    def micros(date: Column) -> Column:
        return F.unix_micros(F.to_utc_timestamp(date.cast("timestamp"), window.timezone))

    months = CALENDAR_MONTHS[window.every]
    local = F.from_utc_timestamp(F.timestamp_micros(time), window.timezone)
    month = F.year(local) * 12 + F.month(local) - 1
    month = month - F.pmod(month - (window.anchor_month - 1), F.lit(months))
    month = F.when(local < boundary(month), month - months).otherwise(month)
    return _window_struct(micros(boundary(month)), micros(boundary(month + months)))


def _window_struct(start: Column, end: Column) -> Column:
    return F.struct(end.alias("end"), start.alias("start"))


def _mark_late_events(frame: DataFrame, stream: Definition) -> DataFrame:
    """Mark late events. Unless they count in their windows, keep one row of each with its partition and offset."""

    is_late = F.col("__window_end") + stream.time.grace_us <= F.col("__watermark")
    if stream.time.late == "include":
        null = F.lit(None).cast("bigint")
        return frame.withColumns({"__is_late": is_late, "__late_partition": null, "__late_offset": null})
    counts = ~is_late | F.col("__redriven")
    frame = frame.withColumn("__is_late", is_late).filter(counts | F.col("__is_last_window"))
    return frame.withColumns(
        {
            "__late_partition": F.when(~counts, F.col("__partition")),
            "__late_offset": F.when(~counts, F.col("__offset")),
        }
    )
