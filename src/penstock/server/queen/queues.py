"""Lookup of queues by namespace and task, and creation on first use."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from penstock.core.errors import NotFound
from penstock.db.statements import Statements
from penstock.log.log import Log
from penstock.log.queue import Queue
from penstock.server.queen.queue_options import DEFAULTS, to_log_options

_sql = Statements("penstock.server.queen", "queues.sql")


@dataclass(frozen=True, slots=True)
class NamespacedQueue:
    id: int
    name: str
    namespace: str
    task: str
    created_at: datetime


async def get_or_create_queue(log: Log, name: str) -> Queue:
    """Return the queue with this name; create it with the defaults of the protocol if it does not exist."""
    try:
        return await log.catalog.get(name)
    except NotFound:
        return await log.configure(name, to_log_options(DEFAULTS))


async def find_queues(log: Log, namespace: str | None = None, task: str | None = None) -> list[NamespacedQueue]:
    """Return the queues of a namespace, a task, or both; all queues if neither is given."""
    return await log.database.fetch(NamespacedQueue, _sql["list"], {"namespace": namespace, "task": task})
