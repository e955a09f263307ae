"""The listing of a query, in the HTTP API and on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from penstock.engine.client_queries import ClientQuery
from penstock.engine.query_registry import QueryInfo
from penstock.log.queue_info import GroupInfo


class QueryListing(Struct, frozen=True, kw_only=True):
    name: str
    #: spark, or clients: clients of Queen's protocol, which compute the query themselves.
    computed_by: str
    #: running, paused, stopped, or failed: it has ended and was not stopped.
    state: str
    #: The driver that runs it on Spark.
    driver: str | None
    queues: list[str]
    sink: str | None
    #: Events that it has not read.
    lag: int
    #: Its last cycle; 0 if clients compute it, because their cycles have no numbers.
    cycle: int
    committed_at: datetime | None
    created_at: datetime


def list_query(query: QueryInfo | ClientQuery, groups: Sequence[GroupInfo]) -> QueryListing:
    """Return the listing of a query, given its own groups."""
    return QueryListing(
        name=query.name,
        computed_by="clients" if isinstance(query, ClientQuery) else "spark",
        state=query.state,
        driver=query.driver if query.is_running else None,
        queues=[query.queue] if isinstance(query, ClientQuery) else [group.queue for group in groups],
        sink=query.sink,
        lag=sum(group.lag for group in groups),
        cycle=query.cycle,
        committed_at=query.committed_at,
        created_at=query.created_at,
    )
