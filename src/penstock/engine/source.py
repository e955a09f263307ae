"""The data source that drives a query's cycles.

Spark asks ``latestOffset`` whether there is work; the answer is the number of a cycle, whose plan lies in the ledger.
``partitions`` cuts a large cycle into tasks and ``read`` gives their events; a small one is read by a plan that was
prepared once (see :mod:`penstock.engine.query`), and its cycle has no tasks here.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.cloudpickle import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from penstock.engine.planning import Planner, Planning
from penstock.engine.reading import Reading, load_plan, read_task
from penstock.engine.stages import CYCLE


@dataclass
class Task(InputPartition):
    """One task of a large cycle."""

    cycle: int
    task: int

    def __init__(self, cycle: int, task: int) -> None:
        super().__init__((cycle, task))
        self.cycle = cycle
        self.task = task


def packed(value: Any) -> str:
    """An object as an option of a data source."""
    pickled: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]  # it has no types
    return base64.b64encode(pickled).decode()


def _unpacked(text: str) -> Any:
    return cloudpickle.loads(base64.b64decode(text))


class CycleSource(DataSource):
    """``format("penstock-cycles")``: the cycles of one query."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "penstock-cycles"

    def schema(self) -> StructType:
        """The columns that the query reads."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self._reading().schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """What drives the cycles, and reads the large ones."""
        return _Cycles(self._reading(), _unpacked(self.options["planning"]))

    def reader(self, schema: StructType) -> DataSourceReader:
        """What reads the small ones."""
        return _Small(self._reading())

    def _reading(self) -> Reading:
        reading: Reading = _unpacked(self.options["reading"])
        return reading


class _Cycles(DataSourceStreamReader):
    def __init__(self, reading: Reading, planning: Planning) -> None:
        self._reading = reading
        self._planning = planning
        self._planner: Planner | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"cycle": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The number of the next cycle, when there is something to do; the same as before, when there is not."""
        if self._planner is None:
            self._planner = Planner(self._planning)
        cycle = self._planner.next_cycle()
        return start if cycle is None else {"cycle": cycle}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        if start == end or end["cycle"] == 0:
            return []
        plan = load_plan(self._reading, end["cycle"])
        return [] if plan.is_small else [Task(plan.cycle, task) for task in range(len(plan.tasks))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)  # noqa: S101 - they are what partitions() gave
        plan = load_plan(self._reading, partition.cycle)
        return _at_least_one(self._reading, read_task(self._reading, plan, partition.task, _attempt()))

    def commit(self, end: dict[str, int]) -> None:
        """Nothing: a cycle is over when PostgreSQL says so."""

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()


class _Small(DataSourceReader):
    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        said = None if context is None else context.getLocalProperty(CYCLE)
        if said is None:
            return _at_least_one(self._reading, iter(()))
        plan = load_plan(self._reading, int(said))
        return _at_least_one(self._reading, read_task(self._reading, plan, 0, _attempt()))


def _attempt() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.taskAttemptId()


def _at_least_one(reading: Reading, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Spark takes columns only if the first thing it gets is a batch of them."""
    empty = True
    for batch in batches:
        empty = False
        yield batch
    if empty:
        yield pa.RecordBatch.from_pylist([], schema=reading.schema)
