"""The memory budget that all requests of a process share."""

from __future__ import annotations

import asyncio

import pytest

from penstock.server.http.errors import Problem
from penstock.server.http.memory_budget import MemoryBudget


async def test_waiter_continues_when_memory_is_released() -> None:
    budget = MemoryBudget(100)
    with budget.reserve() as first, budget.reserve() as second:
        await first.acquire(60)
        waiting = asyncio.create_task(second.acquire(60))
        await asyncio.sleep(0)
        assert not waiting.done()
        first.resize(40)
        await waiting
        assert budget.used == 100
        await second.acquire(50)
        assert budget.used == 100
    assert budget.used == 0


async def test_waiter_is_refused_after_the_timeout() -> None:
    budget = MemoryBudget(100, "responses", wait_seconds=0.01)
    with budget.reserve() as first, budget.reserve() as second:
        # A reservation larger than the budget gets all of it.
        await first.acquire(1000)
        with pytest.raises(Problem, match="100 bytes of responses") as refused:
            await second.acquire(1)
    assert (refused.value.kind, refused.value.status, budget.used) == ("overloaded", 503, 0)


async def test_waiters_are_served_in_order() -> None:
    budget = MemoryBudget(100)
    served: list[int] = []

    async def acquire(number: int, size: int) -> None:
        with budget.reserve() as reservation:
            await reservation.acquire(size)
            served.append(number)

    with budget.reserve() as first:
        await first.acquire(100)
        # The second would fit before the first, which came earlier.
        waiting = [asyncio.create_task(acquire(n, size)) for n, size in enumerate((90, 10, 50))]
        await asyncio.sleep(0)
        first.resize(50)
        await asyncio.sleep(0)
        assert served == []
    await asyncio.gather(*waiting)
    assert (served, budget.used) == ([0, 1, 2], 0)


@pytest.mark.parametrize("granted_before", [False, True])
async def test_cancelled_waiter_does_not_block_the_next(granted_before: bool) -> None:
    budget = MemoryBudget(100)
    with budget.reserve() as first, budget.reserve() as second, budget.reserve() as third:
        await first.acquire(60)
        waiting = [asyncio.create_task(second.acquire(50)), asyncio.create_task(third.acquire(40))]
        await asyncio.sleep(0)
        if granted_before:
            first.resize(0)
        waiting[0].cancel()
        await asyncio.wait(waiting, timeout=1)
        assert [task.cancelled() for task in waiting] == [True, False]
        assert waiting[1].done()
        assert budget.used == (40 if granted_before else 100)
    assert budget.used == 0


async def test_small_reservations_have_their_own_share() -> None:
    budget = MemoryBudget(100, "responses", 5, wait_seconds=0.01)
    with budget.reserve() as large, budget.reserve() as more, budget.reserve() as small:
        await large.acquire(5)
        assert large.grow_to(1000) == 75
        assert large.grow_to(1000) == 75
        with pytest.raises(Problem, match="responses"):
            await more.acquire(6)
        await small.acquire(5)
        assert small.grow_to(50) == 5
        large.resize(0)
        assert small.grow_to(50) == 50
        # Memory that is in use already is always reserved.
        small.resize(200)
        assert budget.used == 200
    assert budget.used == 0


async def test_large_waiter_does_not_block_small_reservations() -> None:
    budget = MemoryBudget(100, "responses", 5)
    with budget.reserve() as first, budget.reserve() as large, budget.reserve() as small:
        await first.acquire(70)
        waiting = asyncio.create_task(large.acquire(20))
        await asyncio.sleep(0)
        await small.acquire(5)
        # No reservation grows while another one waits.
        assert small.grow_to(10) == 5
        first.resize(0)
        await waiting
        assert budget.used == 25
