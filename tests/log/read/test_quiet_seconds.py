from __future__ import annotations

from penstock.core.clock import Clock
from penstock.log.log import Log
from tests.log.logs import QUEUE, pop, push


async def test_pop_skips_a_partition_until_it_is_quiet(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"quiet_seconds": 10})
    await push(log, ["a"], key="ada")
    clock.advance(6)
    await push(log, ["b"], key="ada")
    await push(log, ["c"], key="bob")
    clock.advance(6)
    assert await pop(log, batch=9, partitions=9) == []
    await push(log, ["d"], key="bob")
    clock.advance(5)
    assert [event.data for event in await pop(log, batch=9, partitions=9)] == ["a", "b"]
    clock.advance(6)
    assert [event.data for event in await pop(log, batch=9, partitions=9)] == ["c", "d"]
