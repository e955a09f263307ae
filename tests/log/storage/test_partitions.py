"""Pages of partitions."""

from __future__ import annotations

from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from tests.log.logs import QUEUE, drain, pop, push


async def _lanes(log: Log, count: int) -> None:
    await log.push([Batch(QUEUE, [{"data": n, "key": f"tenant-{n:04}"} for n in range(count)])])


async def test_partitions_are_paged_and_searched_by_name(log: Log) -> None:
    await log.configure(QUEUE)
    await _lanes(log, 120)

    first = await log.partition_page(QUEUE, limit=50)
    third = await log.partition_page(QUEUE, limit=50, offset=100)

    assert [partition.name for partition in first] == [f"tenant-{n:04}" for n in range(50)]
    assert len(third) == 20
    assert [partition.name for partition in await log.partition_page(QUEUE, search="ENANT-011")] == [
        f"tenant-{n:04}" for n in range(110, 120)
    ]
    assert await log.partition_page(QUEUE, search="nobody") == []


async def test_a_partition_page_shows_bounds_and_the_slowest_group(log: Log) -> None:
    await log.configure(QUEUE)
    await log.subscribe(QUEUE, "fast")
    await log.subscribe(QUEUE, "slow")
    await push(log, [1, 2, 3], key="ada")
    await drain(log, group="fast")
    await pop(log, group="slow")

    (partition,) = await log.partition_page(QUEUE)

    assert (partition.name, partition.first, partition.end, partition.lag, partition.leases) == ("ada", 0, 3, 3, 1)
    assert partition.last_at is not None


async def test_hash_partitions_are_ordered_by_number(log: Log) -> None:
    await log.configure("hashed", partitioning="hash", partitions=12)

    assert [partition.name for partition in await log.partition_page("hashed")] == [str(n) for n in range(12)]
