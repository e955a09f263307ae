"""The queries that clients of the message plane compute for themselves, told of beside those that run on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.core.errors import GroupBusy, NotFound
from penstock.db.statements import Statements

if TYPE_CHECKING:
    from penstock.log.log import GroupInfo, Log

_sql = Statements("penstock.server.queen", "client_queries.sql")


@dataclass(frozen=True, slots=True)
class SharedQuery:
    """Such a query. Many workers may compute it, each under the lease of a partition."""

    name: str
    queue: str
    sink: str | None
    #: The group that it reads as.
    group: str
    created_at: datetime
    #: Whether somebody has asked for its events in the last two minutes.
    is_read: bool
    #: When it last got on in its queue.
    committed_at: datetime | None
    #: How its group stands; empty if there is none yet.
    groups: list[GroupInfo]

    @property
    def is_running(self) -> bool:
        """Whether a worker of it seems to be there."""
        return self.is_read or any(group.leases for group in self.groups)

    @property
    def state(self) -> str:
        """In a word."""
        return "running" if self.is_running else "stopped"

    @property
    def lag(self) -> int:
        """How many events it has yet to read."""
        return sum(group.lag for group in self.groups)

    @property
    def description(self) -> list[str]:
        """Its steps, as far as anybody here knows them."""
        steps = [f"reads {self.queue} as the group {self.group}", "clients of the message plane compute it"]
        return steps if self.sink is None else [*steps, f"writes {self.sink}"]


async def shared_queries(
    log: Log, *, name: str | None = None, groups: Sequence[GroupInfo] | None = None
) -> list[SharedQuery]:
    """All of them, or the one of this name; ``groups`` are those of all queues, if they are at hand."""
    async with log.database.connection() as conn:
        rows = await (await conn.execute(_sql["list"], {"name": name, "skew": log.clock.skew})).fetchall()
    if rows and groups is None:
        groups = await log.groups()
    found = []
    for query, queue, sink, group, created_at, is_read, moved_at in rows:
        own = [each for each in groups or () if (each.queue, each.group) == (queue, group)]
        found.append(SharedQuery(query, queue, sink, group, created_at, is_read, moved_at, own))
    return found


async def find_shared(log: Log, name: str) -> SharedQuery | None:
    """The one of this name, if there is one."""
    found = await shared_queries(log, name=name)
    return found[0] if found else None


async def open_rows(log: Log, name: str) -> int:
    """How many rows of its state there are for people to see."""
    async with log.database.connection() as conn:
        row = await (await conn.execute(_sql["open_rows"], {"name": name})).fetchone()
    return 0 if row is None else int(row[0])


async def delete_shared(log: Log, name: str) -> bool:
    """Forget one that nobody computes, with its state and its place; False if there is none of this name."""
    query = await find_shared(log, name)
    if query is None:
        return False
    if query.is_running:
        raise GroupBusy(
            f"clients compute query {name!r}: stop them; two minutes after the last of them it can be deleted"
        )
    async with log.database.connection() as conn:
        if await (await conn.execute(_sql["delete"], {"name": name})).fetchone() is None:
            return False
    with suppress(NotFound):  # where its queue is gone, so is the group
        await log.delete_group(query.queue, query.group)
    return True
