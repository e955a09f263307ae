"""An event of the left input of an outer join that expired without a match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import psycopg

from penstock.db.statements import Statements
from penstock.engine.cycle_plan import CyclePlan
from penstock.engine.joins.join_state import JoinState
from penstock.engine.joins.unmatched_rows import take_oldest
from penstock.engine.worker.event_time import to_timestamp
from penstock.log.event import Delivery, Event
from penstock.log.storage.chunk import ChunkColumns, StoredChunk

_sql = Statements("penstock.engine.joins", "join_state.sql")


@dataclass(frozen=True)
class ExpiredEvent:
    queue_id: int
    partition_id: int
    offset: int
    key: str | None
    time_us: int
    line: str

    @classmethod
    def take(cls, state: JoinState, conn: psycopg.Connection[Any], plan: CyclePlan, token: str) -> Self | None:
        """Return the event that the cycle would emit first. With the state of this token it counts as emitted."""
        rows = take_oldest(state, conn, plan, token)
        if rows is None:
            return None
        (row,) = rows.select(["__partition", "__offset", "__key", "__time", "__line"]).to_pylist()
        partition_id, offset, key, time_us, line = row.values()
        queue = conn.execute(_sql["find_queue"], {"partition": partition_id}).fetchone()
        return cls(0 if queue is None else queue[0], partition_id, offset, key, time_us, line)

    def as_event(self) -> Event:
        """Return the event as a dead letter needs it. Its queue may have deleted it."""
        delivery = Delivery("", "", self.partition_id, is_key_partition=False)
        line = self.line.encode()
        columns = ChunkColumns(line, 1, [self.key])
        stored = StoredChunk.of(columns, [line], self.offset, to_timestamp(self.time_us))
        return Event(delivery, stored, self.offset)
