"""Queries that clients compute themselves: registered with their state in the database, but not run on Spark.

Clients register and update them through ``penstock.server.queen``. This module lists and deletes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

from psycopg.rows import class_row

from penstock.core.errors import GroupBusy, NotFound
from penstock.db.scalar import fetch_scalar
from penstock.db.statements import Statements
from penstock.log.log import Log
from penstock.log.notify import Topic
from penstock.log.queue_info import GroupInfo

_sql = Statements("penstock.engine", "client_queries.sql")


@dataclass(frozen=True, slots=True)
class ClientQuery:
    """A query whose workers are clients. Each worker holds the lease of the partition that it computes."""

    #: It has no driver and cannot be paused, and the cycles of clients have no numbers.
    driver: ClassVar[None] = None
    is_paused: ClassVar[bool] = False
    cycle: ClassVar[int] = 0

    name: str
    queue: str
    sink: str | None
    #: The consumer group that its workers read as.
    group: str
    created_at: datetime
    #: Whether a worker has asked for events in the last two minutes.
    is_read: bool
    #: When its group last moved in a partition.
    committed_at: datetime | None
    #: Its consumer group with its lag; empty if the group does not exist yet.
    groups: list[GroupInfo] = field(default_factory=list)

    @property
    def is_running(self) -> bool:
        """Whether a worker reads for it or holds a lease."""
        return self.is_read or any(group.leases for group in self.groups)

    @property
    def state(self) -> str:
        """``running`` or ``stopped``."""
        return "running" if self.is_running else "stopped"

    @property
    def lag(self) -> int:
        """The number of unread events."""
        return sum(group.lag for group in self.groups)

    @property
    def description(self) -> list[str]:
        """Its known steps. The server does not know what the clients compute."""
        steps = [f"reads {self.queue} as the group {self.group}", "Queen clients compute it"]
        return steps if self.sink is None else [*steps, f"writes {self.sink}"]


def client_cycle_topic(query_id: int) -> Topic:
    """Return the notification topic of the cycles that clients commit through this process."""
    return f"client cycles {query_id}"


async def list_client_queries(
    log: Log, *, name: str | None = None, groups: Sequence[GroupInfo] | None = None
) -> list[ClientQuery]:
    """List all client queries, or the one with this name. Pass ``groups`` of all queues to save reading them."""
    async with log.database.connection() as conn:
        cursor = conn.cursor(row_factory=class_row(ClientQuery))
        await cursor.execute(_sql["list"], {"name": name, "skew": log.clock.skew})
        queries = await cursor.fetchall()
    if queries and groups is None:
        groups = await log.groups()
    for query in queries:
        query.groups.extend(each for each in groups or () if (each.queue, each.group) == (query.queue, query.group))
    return queries


async def find_client_query(log: Log, name: str) -> ClientQuery | None:
    """Return the client query with this name, or None."""
    queries = await list_client_queries(log, name=name)
    return queries[0] if queries else None


async def count_open_rows(log: Log, name: str) -> int:
    """Count the rows of the query's state, without the bookkeeping of the clients."""
    async with log.database.connection() as conn:
        return int(await fetch_scalar(conn, _sql["count_open_rows"], {"name": name}))


async def delete_client_query(log: Log, name: str) -> bool:
    """Delete a stopped client query with its state and its consumer group; return False if there is none."""
    query = await find_client_query(log, name)
    if query is None:
        return False
    if query.is_running:
        raise GroupBusy(
            f"clients compute query {name!r}: stop them; two minutes after the last of them it can be deleted"
        )
    async with log.database.connection() as conn:
        if await (await conn.execute(_sql["delete"], {"name": name})).fetchone() is None:
            return False
    with suppress(NotFound):  # the group went with its queue
        await log.delete_group(query.queue, query.group)
    return True
