"""The release buffer while cycles add events, releases drop them and evictions remove them."""

from __future__ import annotations

import pyarrow as pa

from penstock.engine.cycle_plan import CyclePlan, PartitionRange, SegmentRange
from penstock.engine.gates.release_buffer import BufferedPartition, ReleaseBuffer
from penstock.engine.results.output_rows import OutputEvent
from penstock.engine.worker.task_reports import EventFailure
from penstock.stream.gates import Cost


def buffered(offsets: list[int], read_end: int) -> BufferedPartition:
    position = offsets[0] if offsets else 0
    return BufferedPartition(7, "ada", 1, 1, position, read_end, offsets, [((None, b"{}"),)] * len(offsets))


def test_events_added_during_a_release_do_not_change_the_position_that_it_stores() -> None:
    partition = buffered([90, 91, 92], read_end=100)
    position = partition.position_after(3)
    partition.offsets.append(105)  # the stream filtered out 100 to 104
    partition.outputs.append(((None, b"{}"),))
    partition.read_end = 110

    partition.drop(3, position)

    assert (partition.position, partition.offsets, partition.read_end) == (100, [105], 110)


def test_the_position_moves_past_events_that_the_stream_filtered_out() -> None:
    assert buffered([], read_end=5).position_after(0) == 5


def read(
    cycle: int, *ranges: tuple[int, int, int]
) -> tuple[CyclePlan, list[EventFailure], pa.Table, list[OutputEvent]]:
    """The result of a cycle that read these offsets: partition, start and stop."""
    rows = [(partition, offset) for partition, start, stop in ranges for offset in range(start, stop)]
    planned = [
        PartitionRange(partition, 1, 1, f"t{partition}", True, [SegmentRange(1, start, stop)])
        for partition, start, stop in ranges
    ]
    table = pa.table({"__partition": [partition for partition, _ in rows], "__offset": [offset for _, offset in rows]})
    return CyclePlan(cycle, True, planned, []), [], table, [("", b"{}")] * len(rows)


def park(buffer: ReleaseBuffer, **due: int) -> None:
    for key, due_us in due.items():
        (partition,) = buffer.partitions_of(key)
        partition.due_us, partition.is_parked = due_us, True


def surplus(buffer: ReleaseBuffer, max_size: int, *excluded: int) -> list[int]:
    return [partition.partition_id for partition in buffer.find_surplus(max_size, excluded)]


def test_parked_partitions_with_the_longest_waits_are_evicted_first() -> None:
    buffer = ReleaseBuffer([Cost()])
    buffer.add(*read(1, (1, 0, 10), (2, 0, 10), (3, 0, 10), (4, 0, 10)))
    park(buffer, t1=100, t2=300, t3=200)
    assert surplus(buffer, 40) == []
    assert surplus(buffer, 25) == [2, 3]
    assert surplus(buffer, 0) == [2, 3, 1], "partitions that are not parked stay"
    buffer.evict(buffer.find_surplus(25))
    assert (buffer.size, sorted(buffer.partitions)) == (20, [1, 4])
    buffer.drop(buffer.partitions[1], 10, 10)
    assert (buffer.size, sorted(buffer.partitions)) == (10, [4])


def test_a_partition_with_a_reservation_is_not_evicted() -> None:
    buffer = ReleaseBuffer([Cost()])
    buffer.add(*read(1, (1, 0, 10), (2, 0, 10), (3, 0, 10)))
    park(buffer, t1=100, t2=300, t3=200)
    assert surplus(buffer, 0, 2) == [3, 1]


def test_partitions_are_found_by_key_while_they_are_buffered() -> None:
    buffer = ReleaseBuffer([Cost()])
    buffer.add(*read(1, (1, 0, 10), (2, 0, 10), (3, 0, 10)))
    assert [partition.partition_id for partition in buffer.partitions_of("t2")] == [2]
    assert [partition.partition_id for partition in buffer.partitions_of("")] == [1, 2, 3]
    buffer.evict(buffer.partitions_of("t2"))
    buffer.drop(buffer.partitions[3], 10, 10)
    assert [buffer.partitions_of(key) for key in ("t2", "t3", "t4")] == [[], [], []]
    buffer.begin_cycle()
    buffer.add(*read(2, (2, 0, 10)))
    assert [partition.partition_id for partition in buffer.partitions_of("t2")] == [2]


def test_the_buffer_size_grows_with_the_bytes_of_events() -> None:
    buffer = ReleaseBuffer([Cost()])
    plan, failures, table, _ = read(1, (1, 0, 2), (2, 0, 3))
    buffer.add(plan, failures, table, [("", b"x" * 10_240)] * 2 + [("", b"{}")] * 3)
    assert buffer.size == 2 * 11 + 3
    park(buffer, t1=2, t2=1)
    assert surplus(buffer, 5) == [1]
    buffer.drop(buffer.partitions[1], 1, 1)
    assert buffer.size == 11 + 3


def test_events_that_follow_evicted_ones_are_not_added() -> None:
    buffer = ReleaseBuffer([Cost()])
    buffer.add(*read(1, (1, 0, 10), (2, 0, 10)))
    park(buffer, t1=100, t2=50)
    assert sorted(buffer.begin_cycle()) == [1, 2]
    buffer.evict(buffer.find_surplus(15))

    added = buffer.add(*read(2, (1, 10, 12), (2, 10, 12)))
    assert ([partition.partition_id for partition in added], buffer.size) == ([2], 12)
    assert sorted(buffer.begin_cycle()) == [2]
    buffer.add(*read(3, (1, 0, 4)))
    assert buffer.partitions[1].offsets == [0, 1, 2, 3], "the partition is read again from its position"
    buffer.drop(buffer.partitions[1], 4, 4)
    buffer.add(*read(4, (1, 4, 5)))
    assert buffer.partitions[1].offsets == [4], "and continues from there"
