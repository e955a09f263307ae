"""From options and checkpoints to the ranges of offsets that are read, and from those to tasks."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import msgspec
from pyspark.sql.datasource import InputPartition

from penstock.connector.options import Edge
from penstock.connector.read.offsets import Head, Lost
from penstock.core.errors import Conflict, InvalidOption
from penstock.engine.plan import Lane, Stretch, spread
from penstock.engine.planning.planner import shares

_logger = logging.getLogger("penstock.connector")

#: Up to so many events are one task, and no read is cut finer than into so many tasks unless that is asked for.
_SMALL_EVENTS = 10_000
_MOST_TASKS = 64

_EARLIEST, _LATEST = -2, -1
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Lane]).decode


class Ranges(InputPartition):
    """What one task reads."""

    def __init__(self, lanes: Sequence[Lane], queues: Mapping[int, str]) -> None:
        super().__init__(_encode(lanes))
        #: The names of the queues by their numbers.
        self.queues = dict(queues)

    def lanes(self) -> list[Lane]:
        """The ranges, partition by partition."""
        return _decode(self.value)


def edge_offsets(option: str, edge: Edge, heads: Mapping[int, Head], others: Edge) -> dict[int, int]:
    """An end of each partition, or the offsets that were given; partitions that are not named are at ``others``."""
    if edge == "earliest":
        return {partition: head.first for partition, head in heads.items()}
    if edge == "latest":
        return {partition: head.end for partition, head in heads.items()}
    found = edge_offsets(option, others, heads, others)
    for partition, offset in edge.items():
        head = heads.get(partition)
        if head is None:
            known = ", ".join(map(str, list(heads)[:10])) + (", ..." if len(heads) > 10 else "")
            raise InvalidOption(
                f"option {option!r} names partition {partition}, which is none of this queue: it has {known or 'none'}",
                option=option,
            )
        if offset > head.end:
            raise InvalidOption(
                f"option {option!r} puts partition {partition} at offset {offset}, and it ends before {head.end}",
                option=option,
            )
        found[partition] = {_EARLIEST: head.first, _LATEST: head.end}.get(offset, offset)
    return found


def limited(start: Mapping[int, int], ends: Mapping[int, int], heads: Mapping[int, Head], limit: int) -> dict[int, int]:
    """How far to go with so many events: of each queue older epochs first, so that each key's events keep their order.

    Queues count their epochs apart, and none waits for another.
    """
    reached = {partition: start.get(partition, 0) for partition in ends}
    while limit > 0 and (unread := [p for p in ends if ends[p] > reached[p]]):
        oldest: dict[int, int] = {}
        for head in (heads[p] for p in unread):
            oldest[head.queue] = min(head.epoch, oldest.get(head.queue, head.epoch))
        some = [p for p in unread if heads[p].epoch == oldest[heads[p].queue]]
        parts = shares([ends[p] - reached[p] for p in some], limit)
        for partition, share in zip(some, parts, strict=True):
            reached[partition] += share
        limit -= sum(parts)
    return reached


def tasks(lanes: list[Lane], queues: Mapping[int, str], at_least: int) -> list[Ranges]:
    """The ranges over tasks. A partition is read by one task, in order, unless there are to be more tasks than that."""
    if not lanes:
        return []
    events = sum(lane.stop - lane.start for lane in lanes)
    if at_least > len(lanes):
        lanes = [piece for lane in lanes for piece in _cut(lane, -(-at_least * (lane.stop - lane.start) // events))]
    count = max(at_least, 1 if events <= _SMALL_EVENTS else min(len(lanes), _MOST_TASKS))
    return [Ranges([lanes[place] for place in places], queues) for places in spread(lanes, count) if places]


def _cut(lane: Lane, pieces: int) -> list[Lane]:
    """A lane in so many pieces of about the same size, each after the other."""
    size = lane.stop - lane.start
    pieces = min(pieces, size)
    cut = []
    for place in range(pieces):
        start, stop = (lane.start + size * each // pieces for each in (place, place + 1))
        some = [
            Stretch(s.segment, max(s.start, start), min(s.stop, stop))
            for s in lane.stretches
            if s.start < stop and s.stop > start
        ]
        if some:
            cut.append(msgspec.structs.replace(lane, stretches=some))
    return cut


class EventsLost(Conflict):
    """What was to be read is no longer there."""


def lose(lost: Sequence[Lost], queues: str, *, fail: bool) -> None:
    """Refuse to go on over a gap, or say how large it is."""
    if not lost:
        return
    events = sum(gap.stop - gap.start for gap in lost)
    first = lost[0]
    what = (
        f"{events:,} events of queue {queues!r} are gone before they were read, by retention or because the database "
        f"is another one: partition {first.partition}, offsets {first.start} to {first.stop - 1}"
        + (f", and {len(lost) - 1} more ranges" if len(lost) > 1 else "")
    )
    if fail:
        raise EventsLost(
            f"{what}. To go on without them set the option failOnDataLoss to false; to begin anew take another "
            "checkpointLocation; to keep this from happening read as a `group`, which retention waits for"
        )
    _logger.warning("%s; going on without them", what)
