"""Ranges of offsets: from options and checkpoints to the ranges of each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from pyspark.sql.datasource import InputPartition

from penstock.connector.options import OffsetSpec
from penstock.connector.read.offsets import PartitionOffsets, QueueOffsets
from penstock.core.errors import InvalidOption
from penstock.engine.cycle_plan import PartitionRange, SegmentRange, assign_tasks
from penstock.engine.planning.cycle_size import divide_evenly

#: Up to this many events are read by one task.
_SMALL_READ_EVENTS = 10_000
#: The maximum number of tasks, unless the option minPartitions asks for more.
_MAX_TASKS = 64

_EARLIEST, _LATEST = -2, -1
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[PartitionRange]).decode


class TaskRanges(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, ranges: Sequence[PartitionRange], queues: Mapping[int, str]) -> None:
        super().__init__(_encode(ranges))
        #: The names of the queues by id.
        self.queues = dict(queues)

    def ranges(self) -> list[PartitionRange]:
        return _decode(self.value)


def resolve_offset_spec(
    offsets: QueueOffsets,
    option: str,
    spec: OffsetSpec,
    partitions: Mapping[int, PartitionOffsets],
    default: OffsetSpec,
) -> dict[int, int]:
    """Return the offset of each partition. Partitions that a mapping does not contain are at ``default``."""
    if spec == "earliest":
        return {partition_id: partition.first for partition_id, partition in partitions.items()}
    if spec == "latest":
        return {partition_id: partition.end for partition_id, partition in partitions.items()}
    if isinstance(spec, datetime):
        return offsets.offsets_at(partitions, spec)
    resolved = resolve_offset_spec(offsets, option, default, partitions, default)
    for partition_id, offset in spec.items():
        partition = partitions.get(partition_id)
        if partition is None:
            known = ", ".join(map(str, list(partitions)[:10])) + (", ..." if len(partitions) > 10 else "")
            raise InvalidOption(
                f"option {option!r} names partition {partition_id}, which the queue does not have: it has "
                f"{known or 'none'}",
                option=option,
            )
        if offset > partition.end:
            raise InvalidOption(
                f"option {option!r} sets partition {partition_id} to offset {offset}, and it ends before "
                f"{partition.end}",
                option=option,
            )
        resolved[partition_id] = {_EARLIEST: partition.first, _LATEST: partition.end}.get(offset, offset)
    return resolved


def limit_offsets(
    starts: Mapping[int, int], ends: Mapping[int, int], partitions: Mapping[int, PartitionOffsets], limit: int
) -> dict[int, int]:
    """Return the ends of ranges with at most ``limit`` events.

    Each queue reads older epochs first, so that the events of a key stay in order. Queues do not wait for each other.
    """
    reached = {partition_id: starts.get(partition_id, 0) for partition_id in ends}
    while limit > 0 and (unread := [id_ for id_ in ends if ends[id_] > reached[id_]]):
        oldest: dict[int, int] = {}
        for partition in (partitions[id_] for id_ in unread):
            oldest[partition.queue_id] = min(partition.epoch, oldest.get(partition.queue_id, partition.epoch))
        next_ids = [id_ for id_ in unread if partitions[id_].epoch == oldest[partitions[id_].queue_id]]
        shares = divide_evenly([ends[id_] - reached[id_] for id_ in next_ids], limit)
        for partition_id, share in zip(next_ids, shares, strict=True):
            reached[partition_id] += share
        limit -= sum(shares)
    return reached


def make_tasks(ranges: list[PartitionRange], queues: Mapping[int, str], min_tasks: int) -> list[TaskRanges]:
    """Assign ranges to tasks. A partition is split only if ``min_tasks`` is greater than the number of partitions."""
    if not ranges:
        return []
    events = sum(each.events for each in ranges)
    if min_tasks > len(ranges):
        ranges = [piece for each in ranges for piece in _split(each, -(-min_tasks * each.events // events))]
    count = max(min_tasks, 1 if events <= _SMALL_READ_EVENTS else min(len(ranges), _MAX_TASKS))
    return [
        TaskRanges([ranges[index] for index in indexes], queues) for indexes in assign_tasks(ranges, count) if indexes
    ]


def _split(whole: PartitionRange, pieces: int) -> list[PartitionRange]:
    """Split a range into consecutive pieces of about the same size."""
    size = whole.events
    pieces = min(pieces, size)
    split = []
    for piece in range(pieces):
        start, stop = (whole.start + size * number // pieces for number in (piece, piece + 1))
        segments = [
            SegmentRange(segment.segment, max(segment.start, start), min(segment.stop, stop))
            for segment in whole.segments
            if segment.start < stop and segment.stop > start
        ]
        if segments:
            split.append(msgspec.structs.replace(whole, segments=segments))
    return split
