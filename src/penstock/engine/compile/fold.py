"""``reduce``: a fold in Python over the events of a window, which goes on where the last cycle left it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.core import json
from penstock.db.pg_arrays import numbers
from penstock.db.statements import Statements
from penstock.engine.compile.aggregate_columns import Kept, ResultColumn
from penstock.engine.worker.json_values import plain
from penstock.engine.worker.preaggregate import GROUPS, WINDOW
from penstock.engine.worker.read_config import ABOUT, DATA, META, Reading
from penstock.engine.worker.reports import Report
from penstock.engine.worker.task import asking, connection, report_stage
from penstock.engine.worker.udf import Failure, Watch, failure
from penstock.stream.definition import Reduce
from penstock.stream.steps import Retries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_sql = Statements("penstock.engine.compile", "fold.sql")

#: The number that its reports go by: after those of all other stages.
_STAGE = 1000
_OUT = pa.schema([*WINDOW, ("a0", pa.string())])
_RETRIES = Retries()


def fold_column() -> ResultColumn:
    """The column of a fold's value: what the worker gives takes the place of what was there."""
    from pyspark.sql import functions as F

    kept = Kept("a0", "json", F.lit(None), "{p}", read="{}::json", copied_as="text")
    return ResultColumn("value", "json", (kept,), "{a0}")


def folded(frame: DataFrame, fold: Reduce, reading: Reading) -> DataFrame:
    """The value of each window after the events of the frame."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    hidden = {*META.names, *GROUPS, "__newest", DATA, ABOUT}
    fields = [name for name in frame.columns if name not in hidden]
    event = F.col(DATA) if DATA in frame.columns else F.struct(*[f"`{name}`" for name in fields])
    listed = F.collect_list(F.struct("__late", "__partition", "__offset", event.alias("event")))
    groups = [name for name in GROUPS if name != "__late"]
    grouped = frame.groupBy(*groups).agg(F.max("__partition").alias("__p"), listed.alias("events"))
    return grouped.mapInArrow(_Folder(fold, reading), from_arrow_schema(_OUT))


@dataclass(frozen=True)
class _Folder:
    """What Spark calls in a worker."""

    fold: Reduce
    reading: Reading

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        failures: list[Failure] = []
        for batch in batches:
            groups = batch.to_pylist()
            before = self._values(groups)
            with Watch(_RETRIES.timeout_seconds) as watch:
                rows = [row for group in groups for row in self._rows(group, before, failures, watch)]
            columns = [pa.array([row[f.name] for row in rows], f.type) for f in _OUT]
            yield pa.RecordBatch.from_arrays(columns, schema=_OUT)
        report_stage(self.reading, _STAGE, Report([], failures, {}))

    def _values(self, rows: list[dict[str, Any]]) -> dict[tuple[str, int, int], Any]:
        """What the windows have come to, open ones and, for events that are late, closed ones."""
        if not rows or not self.reading.query:
            return {}
        params = {
            "keys": [row["__k"] for row in rows],
            "starts": numbers([row["__ws"] for row in rows]),
            "ends": numbers([row["__we"] for row in rows]),
        }
        statement = _sql["values"].replace("{id}", str(int(self.reading.query)))
        with asking():
            found = connection(self.reading.conninfo).execute(statement, params).fetchall()
        return {(key, start, end): value for key, start, end, value in found}

    def _rows(
        self, group: dict[str, Any], before: dict[tuple[str, int, int], Any], failures: list[Failure], watch: Watch
    ) -> Iterator[dict[str, Any]]:
        """The value of a window after its events in time, and after those that are late, which go on from there."""
        if group["__ref_p"] is not None:
            yield {**group, "__late": True, "a0": None}
            return
        # What one event has become keeps its order too.
        listed = sorted(group["events"], key=lambda event: (event["__partition"], event["__offset"]))
        for late in (False, True):
            events = [event for event in listed if event["__late"] is late]
            if events:
                where = (group["__k"], group["__ws"], group["__we"])
                value = before.get(where) or json.encode(self.fold.initial).decode()
                for event in events:
                    value = self._after(value, event, failures, watch)
                before[where] = value
                yield {**group, "__late": late, "a0": value}

    def _after(self, value: str, event: dict[str, Any], failures: list[Failure], watch: Watch) -> str:
        """The value after an event, or as it was, however far the function came before it raised."""
        given = event["event"]

        def called(_: int) -> str:
            seen = json.decode(given) if isinstance(given, str) else plain(given)
            return json.encode(self.fold.function(json.decode(value), seen)).decode()

        try:
            return watch.tried(called, _RETRIES)
        except Exception as error:
            where = (event["__partition"], event["__offset"])
            failures.append(failure(*where, "reduce", error, _RETRIES.limit + 1))
            return value
