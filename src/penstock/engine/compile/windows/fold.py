"""``reduce``: folds the events of a window with a user-defined function, starting from the value of the last cycle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.core import json
from penstock.db.pg_arrays import int_array
from penstock.db.statements import Statements, fill_placeholders
from penstock.engine.compile.windows.aggregate_columns import ResultColumn, StateColumn
from penstock.engine.worker.json_values import to_json_value
from penstock.engine.worker.preaggregate import GROUP_COLUMNS, PARTIAL_COLUMNS
from penstock.engine.worker.read_config import EVENT_JSON, METADATA, SYSTEM_COLUMNS, ReadConfig
from penstock.engine.worker.spark_task import send_stage_report, translate_database_errors, worker_connection
from penstock.engine.worker.task_reports import EventFailure, EventRef, TaskReport
from penstock.engine.worker.udf.call_timeout import UdfWatchdog
from penstock.stream.definition import Reduce
from penstock.stream.steps import Retries

_sql = Statements("penstock.engine.compile.windows", "fold.sql")

#: The number under which the tasks report: after those of all other stages.
_STAGE = 1000
_OUTPUT_SCHEMA = pa.schema([*PARTIAL_COLUMNS, ("a0", pa.string())])
_RETRIES = Retries()


#: Key, start and end of a window.
_WindowKey: TypeAlias = tuple[str, int, int]


def fold_column() -> ResultColumn:
    """The column of the folded value. The worker returns the whole value, which replaces the stored one."""

    state = StateColumn("a0", "json", F.lit(None), "{partial}", read="{}::json", copied_as="text")
    return ResultColumn("value", "json", (state,), "{a0}")


def apply_fold(frame: DataFrame, fold: Reduce, config: ReadConfig) -> DataFrame:
    internal = {*SYSTEM_COLUMNS.names, *GROUP_COLUMNS, "__is_last_window", EVENT_JSON, METADATA}
    fields = [name for name in frame.columns if name not in internal]
    event = F.col(EVENT_JSON) if EVENT_JSON in frame.columns else F.struct(*[f"`{name}`" for name in fields])
    events = F.collect_list(F.struct("__is_late", "__partition", "__offset", event.alias("event")))
    groups = [name for name in GROUP_COLUMNS if name != "__is_late"]
    partition = F.max("__partition").alias("__window_partition")
    grouped = frame.groupBy(*groups).agg(partition, events.alias("events"))
    return grouped.mapInArrow(_Folder(fold, config), from_arrow_schema(_OUTPUT_SCHEMA))


@dataclass(frozen=True)
class _Folder:
    """The function that Spark calls in a worker."""

    fold: Reduce
    config: ReadConfig

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        failures: list[EventFailure] = []
        for batch in batches:
            windows = batch.to_pylist()
            values = self._load_values(windows)
            with UdfWatchdog(_RETRIES.timeout_seconds) as watchdog:
                rows = [row for window in windows for row in self._fold_window(window, values, failures, watchdog)]
            columns = [pa.array([row[field.name] for row in rows], field.type) for field in _OUTPUT_SCHEMA]
            yield pa.RecordBatch.from_arrays(columns, schema=_OUTPUT_SCHEMA)
        send_stage_report(self.config, _STAGE, TaskReport([], failures, {}))

    def _load_values(self, windows: list[dict[str, Any]]) -> dict[_WindowKey, Any]:
        """Load the stored values of open windows and, for late events, of closed ones."""
        if not windows or not self.config.query_id:
            return {}
        params = {
            "keys": [window["__group_key"] for window in windows],
            "starts": int_array([window["__window_start"] for window in windows]),
            "ends": int_array([window["__window_end"] for window in windows]),
        }
        statement = fill_placeholders(_sql["load_values"], id=int(self.config.query_id))
        with translate_database_errors():
            rows = worker_connection(self.config.conninfo).execute(statement, params).fetchall()
        return {(key, start_us, end_us): value for key, start_us, end_us, value in rows}

    def _fold_window(
        self,
        window: dict[str, Any],
        values: dict[_WindowKey, Any],
        failures: list[EventFailure],
        watchdog: UdfWatchdog,
    ) -> Iterator[dict[str, Any]]:
        """The value after the events on time, and the value after the late events, which are folded next."""
        if window["__late_partition"] is not None:
            yield {**window, "__is_late": True, "a0": None}
            return
        # The sort is stable: rows of one event keep their order.
        ordered = sorted(window["events"], key=lambda event: (event["__partition"], event["__offset"]))
        for is_late in (False, True):
            events = [event for event in ordered if event["__is_late"] is is_late]
            if events:
                key = (window["__group_key"], window["__window_start"], window["__window_end"])
                value = values.get(key) or json.encode(self.fold.initial).decode()
                for event in events:
                    value = self._fold_event(value, event, failures, watchdog)
                values[key] = value
                yield {**window, "__is_late": is_late, "a0": value}

    def _fold_event(self, value: str, row: dict[str, Any], failures: list[EventFailure], watchdog: UdfWatchdog) -> str:
        """The value after an event; the unchanged value if the function raises."""

        def call(_: int) -> str:
            event = json.decode(row["event"]) if isinstance(row["event"], str) else to_json_value(row["event"])
            return json.encode(self.fold.function(json.decode(value), event)).decode()

        try:
            return watchdog.call_with_retries(call, _RETRIES)
        except Exception as error:
            event_ref = EventRef(row["__partition"], row["__offset"])
            failures.append(EventFailure.from_exception(event_ref, "reduce", error, _RETRIES.limit + 1))
            return value
