"""Whatever is submitted is served, whenever it comes and whatever happens to its neighbours."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain

import pytest

from penstock.core.errors import DatabaseUnavailable
from penstock.log.write.group_commit import Coalescer


class Till:
    """Serves what it is handed, slowly if told to, and remembers in which batches."""

    def __init__(self, *, turns: int = 0) -> None:
        self.batches: list[list[int]] = []
        self._turns = turns
        self.opened = asyncio.Event()
        self.opened.set()

    async def serve(self, items: Sequence[int]) -> None:
        self.batches.append(list(items))
        await self.opened.wait()
        for _ in range(self._turns):
            await asyncio.sleep(0)
        if any(item < 0 for item in items):
            raise ValueError(f"{items} cannot be served")


@pytest.mark.parametrize("turns", [0, 1, 3])
@pytest.mark.parametrize("late", range(15))
async def test_what_comes_at_any_moment_is_served(turns: int, late: int) -> None:
    till = Till(turns=turns)
    coalescer: Coalescer[int] = Coalescer(till.serve)

    async def come_late() -> None:
        for _ in range(late):
            await asyncio.sleep(0)
        await coalescer.submit(2)

    async with asyncio.timeout(5):
        await asyncio.gather(coalescer.submit(1), come_late())
    assert sorted(chain(*till.batches)) == [1, 2]


async def test_what_comes_meanwhile_goes_together() -> None:
    till = Till()
    till.opened.clear()
    coalescer: Coalescer[int] = Coalescer(till.serve)
    submitted = [asyncio.create_task(coalescer.submit(item)) for item in range(10)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    till.opened.set()
    await asyncio.gather(*submitted)
    assert len(till.batches) <= 2


async def test_a_batch_is_no_heavier_than_it_may_be() -> None:
    till = Till()
    coalescer: Coalescer[int] = Coalescer(till.serve, weigh=lambda item: item, most=10)
    await asyncio.gather(*(coalescer.submit(item) for item in [9, 2, 8, 30, 1, 1]))
    assert all(sum(batch) <= 10 or len(batch) == 1 for batch in till.batches)
    assert sorted(chain(*till.batches)) == [1, 1, 2, 8, 9, 30]


async def test_one_that_cannot_be_served_does_not_take_the_others_with_it() -> None:
    coalescer: Coalescer[int] = Coalescer(Till(turns=1).serve)
    outcomes = await asyncio.gather(*(coalescer.submit(item) for item in [1, -2, 3]), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), ValueError, type(None)]


async def test_without_a_database_nobody_is_tried_alone() -> None:
    tries = 0

    async def fail(items: Sequence[int]) -> None:
        nonlocal tries
        tries += 1
        await asyncio.sleep(0)
        raise DatabaseUnavailable("gone")

    coalescer: Coalescer[int] = Coalescer(fail)
    outcomes = await asyncio.gather(*(coalescer.submit(item) for item in range(10)), return_exceptions=True)
    assert all(isinstance(outcome, DatabaseUnavailable) for outcome in outcomes)
    assert tries <= 2


async def test_who_gives_up_waiting_is_not_served_and_stops_nobody() -> None:
    till = Till()
    till.opened.clear()
    coalescer: Coalescer[int] = Coalescer(till.serve)
    tasks = [asyncio.create_task(coalescer.submit(item)) for item in range(3)]
    await asyncio.sleep(0)
    more = [asyncio.create_task(coalescer.submit(item)) for item in range(3, 6)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    more[1].cancel()
    till.opened.set()
    outcomes = await asyncio.gather(*tasks, *more, return_exceptions=True)
    assert [outcome is None for outcome in outcomes] == [True, False, True, True, False, True]


async def test_a_batch_leaves_when_those_who_may_still_come_have() -> None:
    served: list[list[int]] = []
    come = asyncio.Event()

    async def run(items: Sequence[int]) -> None:
        served.append(list(items))

    async def gather(waiting: int) -> None:
        if waiting < 3:
            await come.wait()

    coalescer: Coalescer[int] = Coalescer(run, gather=gather)
    early = [asyncio.create_task(coalescer.submit(n)) for n in (1, 2)]
    await asyncio.sleep(0)
    gone = early.pop()
    gone.cancel()
    late = asyncio.create_task(coalescer.submit(3))
    await asyncio.sleep(0)
    come.set()
    await asyncio.gather(*early, late)
    assert served == [[1, 3]]
    # Who comes alone and goes away leaves nothing to be done.
    come.clear()
    alone = asyncio.create_task(coalescer.submit(4))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    alone.cancel()
    await asyncio.wait([alone])
    come.set()
    await coalescer.drain()
    assert served == [[1, 3]]
