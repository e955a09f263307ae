"""The endpoints that sum up queues, and those of the maintenance mode, which this server does not have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from penstock.core.errors import Conflict
from penstock.db.statements import Statements
from penstock.server.auth.identity import Role
from penstock.server.queen.admin.group_positions import read_positions
from penstock.server.queen.endpoint import queen_routes
from penstock.server.queen.pagination import Limit, Offset
from penstock.server.queen.queues import find_queues
from penstock.server.routing.call import ApiCall

_sql = Statements("penstock.server.queen.admin", "status.sql")
routes = queen_routes()

_ANYONE = (Role.READ, Role.CONSUME, Role.PRODUCE)
_MAINTENANCE = "/api/v1/system/maintenance"


@dataclass(frozen=True, slots=True)
class _QueueTotals:
    queue: str
    partitions: int
    total: int
    pending: int
    leases: int
    dead_letters: int


class MessageTotals(msgspec.Struct, rename="camel"):
    """Numbers of messages. ``pending`` is the lag of the slowest group of each queue."""

    total: int
    pending: int
    completed: int
    dead_letter: int


class ActiveLeases(msgspec.Struct):
    active: int


class Overview(msgspec.Struct):
    namespaces: int
    tasks: int
    queues: int
    partitions: int
    messages: MessageTotals
    leases: ActiveLeases
    timestamp: datetime


class QueueStatusParameters(msgspec.Struct):
    limit: Limit = 1000
    offset: Offset = 0


class QueueTotals(msgspec.Struct):
    name: str
    namespace: str
    task: str
    partitions: int
    messages: MessageTotals


class QueueTotalsList(msgspec.Struct):
    queues: list[QueueTotals]
    total: int


class DepthParameters(msgspec.Struct):
    group: str = ""


class PartitionBacklog(msgspec.Struct):
    partition: str
    pending: int


class QueueBacklog(msgspec.Struct, rename="camel"):
    """The messages that a group has not read, or the slowest group of each partition if none is named."""

    queue: str
    group: str | None
    pending: int
    partitions_pending: int
    effective_pending: int
    partitions: list[PartitionBacklog]
    conflation: bool = False


class MaintenanceChange(msgspec.Struct):
    enabled: bool


class MaintenanceStatus(msgspec.Struct, rename="camel"):
    """The maintenance mode, which is always off: pushes are never buffered outside of the database."""

    maintenance_mode: bool = False
    pop_maintenance_mode: bool = False
    buffered_messages: int = 0
    buffer_healthy: bool = True
    message: str = "this server has no maintenance mode"


@routes.get("/api/v1/resources/overview", "Sum up all queues", *_ANYONE, checks_queues=True)
@routes.get("/api/v1/status", "Sum up all queues", *_ANYONE, checks_queues=True, operation="get_status")
async def get_overview(call: ApiCall) -> Overview:
    totals = await _read_totals(call)
    queues = [queue for queue in await find_queues(call.log) if call.can_see(queue.name)]
    return Overview(
        len({queue.namespace for queue in queues if queue.namespace}),
        len({queue.task for queue in queues if queue.task}),
        len(totals),
        sum(each.partitions for each in totals),
        _count_messages(totals),
        ActiveLeases(sum(each.leases for each in totals)),
        datetime.now(UTC),
    )


@routes.get("/api/v1/status/queues", "List the totals of queues", *_ANYONE, checks_queues=True)
async def list_queue_totals(call: ApiCall, query: QueueStatusParameters) -> QueueTotalsList:
    totals = {each.queue: each for each in await _read_totals(call)}
    queues = [
        QueueTotals(queue.name, queue.namespace, queue.task, each.partitions, _count_messages([each]))
        for queue in await find_queues(call.log)
        if (each := totals.get(queue.name)) is not None
    ]
    return QueueTotalsList(queues[query.offset : query.offset + query.limit], len(queues))


@routes.get("/api/v1/resources/queues/{queue}/depth", "Show the backlog of a queue", *_ANYONE, problems=("not-found",))
@routes.get(
    "/api/v1/status/queues/{queue}",
    "Show the backlog of a queue",
    *_ANYONE,
    problems=("not-found",),
    operation="get_queue_status",
)
async def get_depth(call: ApiCall, query: DepthParameters) -> QueueBacklog:
    """Show how many messages of each partition the group has not read; without a group, the slowest of all groups."""
    name = call.path["queue"]
    await call.log.catalog.get(name)
    groups = [query.group] if query.group else [group.group for group in await call.log.groups(name)]
    pending: Counter[str] = Counter()
    if not groups:
        pending.update(
            {partition.name: partition.end - partition.first for partition in await call.log.partitions(name)}
        )
    for group in groups:
        for position in await read_positions(call.log, name, group):
            pending[position.partition] = max(pending[position.partition], position.offset_lag)
    total = pending.total()
    behind = sum(1 for count in pending.values() if count)
    partitions = [PartitionBacklog(partition, count) for partition, count in sorted(pending.items())]
    return QueueBacklog(name, query.group or None, total, behind, total, partitions)


@routes.get(_MAINTENANCE, "Show the maintenance mode", Role.READ)
@routes.get(f"{_MAINTENANCE}/pop", "Show the maintenance mode of pops", Role.READ, operation="get_pop_maintenance")
async def get_maintenance(_call: ApiCall) -> MaintenanceStatus:
    """Return that the maintenance mode is off, as it always is."""
    return MaintenanceStatus()


@routes.post(_MAINTENANCE, "Set the maintenance mode", Role.ADMIN, problems=("conflict",))
@routes.post(
    f"{_MAINTENANCE}/pop",
    "Set the maintenance mode of pops",
    Role.ADMIN,
    problems=("conflict",),
    operation="set_pop_maintenance",
)
async def set_maintenance(_call: ApiCall, body: MaintenanceChange) -> MaintenanceStatus:
    """Accept that it is switched off, and refuse that it is switched on."""
    if body.enabled:
        raise Conflict(
            "this server has no maintenance mode: it buffers no messages outside of the database. Stop the server, and "
            "clients try again until it is back"
        )
    return MaintenanceStatus()


async def _read_totals(call: ApiCall) -> list[_QueueTotals]:
    call.require_access(())
    totals = await call.log.database.fetch(_QueueTotals, _sql["queues"])
    return [each for each in totals if call.can_see(each.queue)]


def _count_messages(totals: Sequence[_QueueTotals]) -> MessageTotals:
    return MessageTotals(
        sum(each.total for each in totals),
        sum(each.pending for each in totals),
        sum(max(each.total - each.pending, 0) for each in totals),
        sum(each.dead_letters for each in totals),
    )
