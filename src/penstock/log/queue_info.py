"""Descriptions of queues and groups, with their sizes and lags."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.core.errors import NotFound
from penstock.log.queue import Queue
from penstock.log.storage.queue_stats import GroupLag, QueueSize

if TYPE_CHECKING:
    from penstock.log.catalog import Catalog
    from penstock.log.groups import Groups
    from penstock.log.storage.queue_stats import QueueStats


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group and its lag."""

    queue: str
    group: str
    subscribed_from: str
    query_id: str | None
    created_at: datetime
    lag: int
    partitions_behind: int
    leases: int
    counts: bool = True
    seen_at: datetime | None = None
    away: bool = False


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue, its size, the lags of its groups and its number of dead letters."""

    queue: Queue
    size: QueueSize
    groups: list[GroupLag]
    dead_letters: int


async def list_groups(
    catalog: Catalog, groups: Groups, stats: QueueStats, queue: Queue | None = None
) -> list[GroupInfo]:
    infos: list[GroupInfo] = []
    lags: dict[str, dict[str, GroupLag]] = {}
    for name in await groups.names(queue):
        if name.queue not in lags:
            try:
                described = await catalog.get(name.queue)
            except NotFound:
                continue  # deleted meanwhile
            lags[name.queue] = {lag.group: lag for lag in await stats.lags(described)}
        lag = lags[name.queue].get(name.group, GroupLag(name.group, 0, 0, 0))
        infos.append(
            GroupInfo(
                name.queue,
                name.group,
                name.subscribed_from,
                name.query_id,
                name.created_at,
                lag.lag,
                lag.partitions_behind,
                lag.leases,
                lag.counts,
                lag.seen_at,
                lag.away,
            )
        )
    return infos
