"""Looks up the query and the partition that a request names, and whether the partition is idle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from psycopg import AsyncConnection
from psycopg.rows import class_row

from penstock.db.statements import Statements
from penstock.log.log import Log
from penstock.server.http.errors import Problem
from penstock.server.queen.delivery.ack_by_id import AcksById
from penstock.server.queen.delivery.event_lookup import PartitionRef
from penstock.server.queen.identifiers import IdKind, decode_id
from penstock.server.routing.call import ApiCall

_sql = Statements("penstock.server.queen.streams", "query_partition.sql")


@dataclass(frozen=True, slots=True)
class StreamQuery:
    id: int
    group_name: str
    source_queue: str


class QueryPartition(NamedTuple):
    query: StreamQuery
    partition: PartitionRef


@dataclass(frozen=True, slots=True)
class _PartitionActivity:
    is_leased: bool
    has_unread: bool


async def find_query_partition(call: ApiCall, query_text: str, partition_text: str) -> QueryPartition:
    """Return the query and partition with these ids; refuse the call if the caller may not use the query's source."""
    query_id = decode_id(IdKind.QUERY, query_text)
    partition_id = decode_id(IdKind.PARTITION, partition_text)
    if query_id is None or partition_id is None:
        invalid = "query_id" if query_id is None else "partition_id"
        raise Problem("invalid-request", f"{invalid} is not an id of this server")
    queries = await call.log.database.fetch(StreamQuery, _sql["query"], {"query": query_id})
    if not queries:
        raise Problem("not-found", "the query was deleted: register it again")
    (query,) = queries
    partition = await call.services.component(AcksById).lookup.find_partition(partition_id)
    if partition is None:
        raise Problem("not-found", "the partition was deleted with its queue")
    call.require_access_silently(query.source_queue)
    return QueryPartition(query, partition)


async def find_activity(conn: AsyncConnection[Any], log: Log, partition: PartitionRef, group: str) -> str | None:
    """Return why a partition is not idle for a group; None if it is idle."""
    queue = await log.catalog.get_on(conn, partition.queue)
    params = {"queue": queue.id, "group": group, "partition": partition.partition_id}
    cursor = conn.cursor(row_factory=class_row(_PartitionActivity))
    await cursor.execute(_sql.table("activity", queue.id, queue.segment), params)
    activity = await cursor.fetchone()
    if activity is None:
        return None
    if activity.is_leased:
        return "a worker holds the partition"
    return "the partition has unread messages" if activity.has_unread else None
