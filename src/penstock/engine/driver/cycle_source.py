"""The data source that drives a query's cycles.

Spark asks ``latestOffset`` whether there is work; the answer is the number of a cycle, whose plan lies in the ledger.
The source gives no rows: the job of the cycle reads the events itself (:mod:`penstock.engine.worker.reader`), so that
small cycles can run a plan that was made once, and Spark starts no Python process to plan the reading of each cycle.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.cloudpickle import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from penstock.engine.gates.planner import GatedPlanner, GatedPlanning
from penstock.engine.planning.planner import Planner, Planning


def packed(value: Any) -> str:
    """An object as an option of a data source."""
    pickled: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]  # it has no types
    return base64.b64encode(pickled).decode()


def _unpacked(text: str) -> Any:
    return cloudpickle.loads(base64.b64decode(text))


class CycleSource(DataSource):
    """``format("penstock-cycles")``: the cycles of one query, each a number."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "penstock-cycles"

    def schema(self) -> str:
        """A column that never has a row: the events of a cycle are read by its own job."""
        return "cycle bigint"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """What drives the cycles."""
        return _Cycles(_unpacked(self.options["planning"]))


class _Cycles(DataSourceStreamReader):
    def __init__(self, planning: Planning) -> None:
        self._planning = planning
        self._planner: Planner | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"cycle": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The number of the next cycle, when there is something to do; the same as before, when there is not."""
        if self._planner is None:
            planning = self._planning
            self._planner = GatedPlanner(planning) if isinstance(planning, GatedPlanning) else Planner(planning)
        cycle = self._planner.next_cycle()
        return start if cycle is None else {"cycle": cycle}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return iter(())

    def commit(self, end: dict[str, int]) -> None:
        """Nothing: a cycle is over when PostgreSQL says so."""

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
