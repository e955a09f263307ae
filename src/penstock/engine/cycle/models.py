"""What a cycle came to, whom it is committed for, and what the commit did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.engine.cycle.partials import Closing
from penstock.engine.joins.state import Kept, Waited, WaitingTable
from penstock.engine.plan import CyclePlan
from penstock.engine.result_tables import ResultTables
from penstock.engine.worker.reports import Report

if TYPE_CHECKING:
    from penstock.stream.definition import TimeRules


@dataclass(frozen=True, slots=True)
class Answer:
    """What Spark said for the events of a cycle, and when it was busy with that, on this process's clock."""

    table: pa.Table
    started_at: datetime
    began: float
    ended: float


@dataclass(frozen=True)
class Work:
    """What a cycle came to, before it is committed."""

    plan: CyclePlan
    reports: Sequence[Report]
    #: Partials with the columns of the temporary table, or None for a stream without windows.
    partials: pa.Table | None
    #: Events that came late and are not counted: partition and offset.
    late: Sequence[tuple[int, int]]
    #: Events for the sink: key and JSON.
    outputs: Sequence[tuple[str | None, bytes]]
    started_at: datetime
    took: dict[str, float]
    #: Close every window that is open, whatever the time.
    flush: bool = False
    #: Sessions that have become others: key, new and old span, and whether that had been closed.
    moves: Sequence[dict[str, Any]] = ()
    #: What changes of the state of a join; None where nothing was computed.
    kept: Kept | None = None
    #: An event of a join that is given up after it waited, among the failures.
    waited: Waited | None = None


@dataclass
class Outcome:
    """What a commit did."""

    events_in: int = 0
    events_out: int = 0
    windows: int = 0
    late: int = 0
    dead: int = 0
    #: What conditions in Python left out.
    dropped: int = 0


@dataclass(frozen=True)
class Target:
    """The query that cycles are committed for."""

    query: int
    name: str
    fence: int
    lease_seconds: float
    #: Queue name, queue id, group name and id of what it reads.
    groups: Sequence[tuple[str, int, str, int]]
    tables: ResultTables | None
    rules: TimeRules
    closing: Closing
    sink: str | None
    keeps_late: str
    history_seconds: float
    #: What chooses the key of a closed window's event; None: the window's own.
    window_key: Any = None
    #: The state of a join of streams.
    waiting: WaitingTable | None = None
