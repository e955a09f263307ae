"""How the workers of a query read: what they are told, and the columns that every event has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.engine.worker.preaggregate import BLOCKS, Combining
from penstock.stream.steps import Step

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

    from penstock.engine.worker.udf import Failure

#: The columns that go with every event, whatever is done to it.
META = pa.schema(
    [
        ("__partition", pa.int64()),
        ("__offset", pa.int64()),
        ("__key", pa.string()),
        ("__time", pa.int64()),
        # Windows that end (with their grace) at or before it are closed for this event.
        ("__bound", pa.int64()),
        ("__redriven", pa.bool_()),
    ]
)
NO_FIELDS = pa.schema([])
#: The whole event as JSON, where somebody wants it.
DATA = "__data"
#: What callables are told of an event, as JSON, where one that comes after something that Spark does asks for it.
ABOUT = "__about"


@dataclass(frozen=True)
class Reading:
    """How the tasks of a query read: sent to every worker."""

    conninfo: str = field(repr=False)
    query: int
    query_name: str
    #: Declared and inferred types of the fields that come out of here.
    fields: pa.Schema
    #: Queue names by id, for callables that ask.
    queues: dict[int, str]
    event_time: Any
    lateness_us: int
    #: Callables that come before anything that Spark does.
    steps: tuple[Step, ...]
    with_data: bool
    #: The number that the reader's reports go by; another one for each reader of a cycle.
    number: int = 0
    #: What the tasks add up by themselves, if they do.
    combining: Combining | None = None
    with_about: bool = False
    #: Where events that fail are told of outside a cycle, if somebody looks.
    failed: Accumulator[list[Failure]] | None = None
    #: Fields that something later takes out of the whole event: read to find events that do not fit, and not given.
    looked_into: pa.Schema = NO_FIELDS

    @property
    def schema(self) -> pa.Schema:
        """The columns that come out."""
        return self.events if self.combining is None else BLOCKS

    @property
    def events(self) -> pa.Schema:
        """The columns of events."""
        return events_schema(self.fields, self.with_data, self.with_about)


def events_schema(fields: Iterable[pa.Field], with_data: bool, with_about: bool) -> pa.Schema:
    """The columns of events that have these fields."""
    beside = [name for name, is_there in ((DATA, with_data), (ABOUT, with_about)) if is_there]
    return pa.schema([*META, *[(name, pa.string()) for name in beside], *fields])
