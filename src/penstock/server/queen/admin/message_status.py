"""Reads which consumer groups have leased or completed a message, and its dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from penstock.db.statements import Statements
from penstock.log.log import Log
from penstock.server.queen.delivery.event_lookup import StoredMessage

_sql = Statements("penstock.server.queen.admin", "message_status.sql")


@dataclass(frozen=True, slots=True)
class GroupReader:
    """The position of a consumer group in a partition."""

    group: str
    next_offset: int
    skipped: list[int]
    lease_end: int
    available_at: datetime
    is_leased: bool

    def has_completed(self, offset: int) -> bool:
        """Whether the group has completed the message at this offset."""
        return offset < self.next_offset or offset in self.skipped

    def has_leased(self, offset: int) -> bool:
        """Whether the message at this offset is under an active lease of the group."""
        return self.is_leased and self.next_offset <= offset < self.lease_end and offset not in self.skipped

    def status_of(self, offset: int) -> str:
        """Return processing, completed or pending."""
        return "processing" if self.has_leased(offset) else "completed" if self.has_completed(offset) else "pending"


@dataclass(frozen=True, slots=True)
class EventDeadLetter:
    id: int
    group_name: str
    error: str
    attempts: int


async def read_readers(log: Log, partition_id: int) -> list[GroupReader]:
    """Return the consumer groups that read a partition, by name."""
    return await log.database.fetch(GroupReader, _sql["readers"], {"partition": partition_id})


async def read_dead_letters(log: Log, message: StoredMessage) -> list[EventDeadLetter]:
    """Return the dead letters of a message that were not replayed, oldest first."""
    partition, event = message
    params = {"queue": partition.queue_id, "partition": partition.partition_id, "offset": event.offset}
    return await log.database.fetch(EventDeadLetter, _sql["dead_letters"], params)


async def read_dead_offsets(log: Log, queue_id: int, offsets: Mapping[int, Sequence[int]]) -> set[tuple[int, int]]:
    """Return (partition id, offset) of those events that have a dead letter, given offsets by partition id."""
    dead: set[tuple[int, int]] = set()
    async with log.database.connection() as conn:
        for partition_id, of_partition in offsets.items():
            params = {"queue": queue_id, "partition": partition_id, "offsets": list(of_partition)}
            rows = await (await conn.execute(_sql["dead_offsets"], params)).fetchall()
            dead.update((partition_id, offset) for (offset,) in rows)
    return dead
