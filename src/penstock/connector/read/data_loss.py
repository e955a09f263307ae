"""Data loss: events that were deleted before Spark read them fail the job or are logged (``failOnDataLoss``)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.core.errors import Conflict
from penstock.core.formatting import counted
from penstock.engine.cycle_plan import SegmentRange

_logger = logging.getLogger("penstock.connector")


class EventsLost(Conflict):
    """Events were deleted before they were read."""


class LostRange(NamedTuple):
    """Offsets ``start`` to ``stop`` (exclusive) of a partition that are deleted."""

    partition_id: int
    start: int
    stop: int


def find_gaps(partition_id: int, start: int, stop: int, segments: Iterable[SegmentRange]) -> list[LostRange]:
    """Return the offsets of a range that are in none of the segments."""
    lost = []
    for segment in segments:
        if segment.start > start:
            lost.append(LostRange(partition_id, start, segment.start))
        start = max(start, segment.stop)
    if start < stop:
        lost.append(LostRange(partition_id, start, stop))
    return lost


def handle_loss(lost: Sequence[LostRange], queues: str, *, fail: bool) -> None:
    """Raise EventsLost, or log a warning, if events were deleted before they were read."""
    if not lost:
        return
    events = sum(each.stop - each.start for each in lost)
    first = lost[0]
    message = (
        f"{counted(events, 'event')} of queue {queues!r} {'was' if events == 1 else 'were'} deleted before a read, by "
        "retention or because the database is another one: "
        f"partition {first.partition_id}, offsets {first.start} to {first.stop - 1}"
        + (f", and {counted(len(lost) - 1, 'more range')}" if len(lost) > 1 else "")
    )
    if fail:
        raise EventsLost(
            f"{message}. To continue without them set the option failOnDataLoss to false; to start again use another "
            "checkpointLocation; to prevent this read as a `group`, which retention waits for"
        )
    _logger.warning("%s; continuing without them", message)
