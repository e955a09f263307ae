"""The JSON documents that ``--json`` prints. Their field names are part of the public interface."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from penstock.log.queue_options import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msgspec import Struct

    from penstock.engine.client_queries import ClientQuery
    from penstock.engine.cycle_ledger import Activity, CycleRecord
    from penstock.engine.query_registry import QueryInfo
    from penstock.engine.views.view_size import ViewStatus
    from penstock.log.dead_letters.dead_letter import DeadLetter, DeadLetterEdit
    from penstock.log.event import Event
    from penstock.log.groups import PartitionPosition
    from penstock.log.queue import Queue
    from penstock.log.queue_info import GroupInfo, QueueInfo
    from penstock.log.storage.partitions import Partition

OPTIONS = (*DEFAULTS, "dedup_window_seconds")


def queue_options(queue: Queue) -> dict[str, Any]:
    return {name: getattr(queue, name) for name in OPTIONS}


def queue_summary(queue: Queue) -> dict[str, Any]:
    return {
        "name": queue.name,
        "partitioning": queue.partitioning,
        "partition_count": queue.partition_count,
        "created_at": queue.created_at,
        "options": queue_options(queue),
    }


def queue_listing(info: QueueInfo) -> dict[str, Any]:
    """Return an entry of ``queue list``."""
    return {
        "name": info.queue.name,
        "partitioning": info.queue.partitioning,
        "partitions": info.size.partitions,
        "events": info.size.events,
        "appended": info.size.appended,
        "bytes": info.size.bytes,
        "groups": len(info.groups),
        "lag": max((group.lag for group in info.groups), default=0),
        "dead_letters": info.dead_letters,
        "created_at": info.queue.created_at,
    }


def queue_details(info: QueueInfo, busiest: Sequence[Partition]) -> dict[str, Any]:
    """Return the document of ``queue show``."""
    from penstock.log.catalog import many_partitions_advice

    return {
        **queue_summary(info.queue),
        "size": dataclasses.asdict(info.size),
        "busiest_partitions": [
            {
                "partition": partition.name,
                "epoch": partition.epoch,
                "first_offset": partition.first,
                "end_offset": partition.end,
                "events": partition.end - partition.first,
            }
            for partition in busiest
        ],
        "groups": [dataclasses.asdict(group) for group in info.groups],
        "dead_letters": info.dead_letters,
        "advice": many_partitions_advice(info.queue.name) if info.queue.partitions_warned_at else None,
    }


def group_partition(position: PartitionPosition) -> dict[str, Any]:
    # A partition that was never leased is available since -infinity, which JSON cannot represent.
    available_at = position.available_at if position.attempts or position.leased else None
    return {**dataclasses.asdict(position), "available_at": available_at, "lag": position.lag}


def event(event: Event) -> dict[str, Any]:
    """Return an event, with its data as stored."""
    from msgspec import Raw

    return {
        "queue": event.queue,
        "partition": event.partition,
        "offset": event.offset,
        "key": event.key,
        "id": event.id,
        "time": event.time,
        "appended_at": event.appended_at,
        "headers": event.headers,
        "data": Raw(event.raw),
    }


def dead_letter(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter, with its data as stored."""
    values = _fields(letter)
    return {**values, "data": values.pop("text")}


def dead_letter_edit(edit: DeadLetterEdit) -> dict[str, Any]:
    """Return the data of a dead letter before and after an edit, as stored."""
    values = _fields(edit)
    renamed = {"before": values.pop("before_text"), "after": values.pop("after_text")}
    renamed["changed"] = values.pop("is_changed")
    return {**values, **renamed}


def query_listing(query: QueryInfo | ClientQuery, groups: Sequence[GroupInfo]) -> dict[str, Any]:
    """Return an entry of ``query list``. Spark or clients compute the query."""
    from penstock.protocol.queries import list_query

    return {**_fields(list_query(query, groups)), "is_paused": query.is_paused}


def query_details(
    query: QueryInfo,
    groups: Sequence[GroupInfo],
    activity: Activity,
    activity_seconds: float,
    view: ViewStatus | None = None,
) -> dict[str, Any]:
    """Return the document of ``query show``."""
    has_live_view = activity.has_result or (view is not None and not query.is_rebuild)
    return {
        **query_listing(query, groups),
        "description": query.description,
        "fence": query.fence,
        "lease_until": activity.lease_until if query.is_running else None,
        "history_seconds": activity.history_seconds,
        "open_windows": activity.open_windows if activity.has_result else None,
        "watermark": activity.watermark,
        "live_view": _view("penstock_live", query.name) if has_live_view else None,
        "history_view": _view("penstock_history", query.name) if activity.has_result else None,
        "lately": {
            "seconds": activity_seconds,
            **{name: getattr(activity, name) for name in ("cycles", "failed", "events_in", "windows", "late", "dead")},
        },
        "groups": [dataclasses.asdict(group) for group in groups],
        "materialized_view": None if view is None else _view_size(view),
    }


def _view_size(view: ViewStatus) -> dict[str, Any]:
    return {**dataclasses.asdict(view), "operators": [operator._asdict() for operator in view.operators]}


def _view(schema: str, query: str) -> str:
    """Return the name of a view, quoted if SQL requires it."""
    from psycopg import sql

    plain = query.isidentifier() and query.isascii() and query == query.lower()
    return f"{schema}.{query if plain else sql.Identifier(query).as_string()}"


def cycle(cycle: CycleRecord) -> dict[str, Any]:
    return {**dataclasses.asdict(cycle), "state": cycle.state, "seconds": cycle.seconds}


def _fields(struct: Struct) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}
