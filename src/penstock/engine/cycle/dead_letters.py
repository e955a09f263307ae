"""Stores the events that failed in a cycle, and late events, as dead letters."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from penstock.engine.cycle.cycle_result import CommitStats, CommitTarget, CycleResult
from penstock.engine.worker.task_reports import EventFailure, EventRef
from penstock.log.dead_letters.dead_letter import FailedEvent
from penstock.log.log import Log

#: The stage and the error of late events.
_LATE_FOR_WINDOW = ("window", "late: its window was closed before it came; redrive it to correct the window")
_LATE_FOR_JOIN = (
    "join",
    "late: the events that it belongs to have expired; redrive it to join it with those that have not",
)


async def store_dead_letters(
    conn: AsyncConnection[Any], log: Log, target: CommitTarget, result: CycleResult, stats: CommitStats
) -> None:
    """Store the dead letters of a cycle, and count them and the late events."""
    failures: dict[EventRef, EventFailure] = {}
    for report in result.reports:
        for failure in report.failures:
            failures.setdefault(failure.event, failure)
    late = [event for event in dict.fromkeys(result.late) if event not in failures]
    stats.late = len(late)
    if target.late_policy == "dead_letter":
        reason = _LATE_FOR_WINDOW if target.join_state is None else _LATE_FOR_JOIN
        failures.update({event: EventFailure(*event, *reason) for event in late})
    stats.dead = len(failures)
    by_partition: dict[int, list[FailedEvent]] = {}
    for event, failure in sorted(failures.items()):
        failed = FailedEvent(event.offset, failure.error, failure.stage, failure.traceback, failure.attempts)
        by_partition.setdefault(event.partition_id, []).append(failed)
    queue_ids = {partition.partition_id: partition.queue_id for partition in result.plan.partitions}
    expired = result.expired_event
    if expired is not None:
        queue_ids[expired.partition_id] = expired.queue_id
    sources = {source.queue_id: source for source in target.groups}
    for partition_id, events in by_partition.items():
        source = sources[queue_ids[partition_id]]
        queue = await log.catalog.get(source.queue)
        copy = None if expired is None else expired.as_event()
        await log.dead_letter_store.add(conn, queue, source.group, partition_id, events, copy)
