"""Group commit: every submitted item is run, independently of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain

import pytest

from penstock.core.errors import DatabaseUnavailable
from penstock.log.group_commit import GroupCommit


class Till:
    """Runs batches, slowly on demand, and records them."""

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
async def test_items_submitted_at_any_time_are_run(turns: int, late: int) -> None:
    till = Till(turns=turns)
    coalescer: GroupCommit[int] = GroupCommit(till.serve)

    async def come_late() -> None:
        for _ in range(late):
            await asyncio.sleep(0)
        await coalescer.submit(2)

    async with asyncio.timeout(5):
        await asyncio.gather(coalescer.submit(1), come_late())
    assert sorted(chain(*till.batches)) == [1, 2]


async def test_items_submitted_during_a_batch_run_together() -> None:
    till = Till()
    till.opened.clear()
    coalescer: GroupCommit[int] = GroupCommit(till.serve)
    submitted = [asyncio.create_task(coalescer.submit(item)) for item in range(10)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    till.opened.set()
    await asyncio.gather(*submitted)
    assert len(till.batches) <= 2


async def test_a_batch_does_not_exceed_its_weight() -> None:
    till = Till()
    coalescer: GroupCommit[int] = GroupCommit(till.serve, weigh=lambda item: item, max_weight=10)
    await asyncio.gather(*(coalescer.submit(item) for item in [9, 2, 8, 30, 1, 1]))
    assert all(sum(batch) <= 10 or len(batch) == 1 for batch in till.batches)
    assert sorted(chain(*till.batches)) == [1, 1, 2, 8, 9, 30]


async def test_a_failing_item_does_not_fail_the_others() -> None:
    coalescer: GroupCommit[int] = GroupCommit(Till(turns=1).serve)
    outcomes = await asyncio.gather(*(coalescer.submit(item) for item in [1, -2, 3]), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), ValueError, type(None)]


async def test_items_are_not_retried_alone_without_a_database() -> None:
    tries = 0

    async def fail(items: Sequence[int]) -> None:
        nonlocal tries
        tries += 1
        await asyncio.sleep(0)
        raise DatabaseUnavailable("gone")

    coalescer: GroupCommit[int] = GroupCommit(fail)
    outcomes = await asyncio.gather(*(coalescer.submit(item) for item in range(10)), return_exceptions=True)
    assert all(isinstance(outcome, DatabaseUnavailable) for outcome in outcomes)
    assert tries <= 2


async def test_a_cancelled_item_is_skipped() -> None:
    till = Till()
    till.opened.clear()
    coalescer: GroupCommit[int] = GroupCommit(till.serve)
    tasks = [asyncio.create_task(coalescer.submit(item)) for item in range(3)]
    await asyncio.sleep(0)
    more = [asyncio.create_task(coalescer.submit(item)) for item in range(3, 6)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    more[1].cancel()
    till.opened.set()
    outcomes = await asyncio.gather(*tasks, *more, return_exceptions=True)
    assert [outcome is None for outcome in outcomes] == [True, False, True, True, False, True]


async def test_a_batch_waits_for_gather() -> None:
    served: list[list[int]] = []
    come = asyncio.Event()

    async def run(items: Sequence[int]) -> None:
        served.append(list(items))

    async def gather(waiting: int) -> None:
        if waiting < 3:
            await come.wait()

    coalescer: GroupCommit[int] = GroupCommit(run, gather=gather)
    early = [asyncio.create_task(coalescer.submit(n)) for n in (1, 2)]
    await asyncio.sleep(0)
    gone = early.pop()
    gone.cancel()
    late = asyncio.create_task(coalescer.submit(3))
    await asyncio.sleep(0)
    come.set()
    await asyncio.gather(*early, late)
    assert served == [[1, 3]]
    # A single item that is cancelled leaves nothing to run.
    come.clear()
    alone = asyncio.create_task(coalescer.submit(4))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    alone.cancel()
    await asyncio.wait([alone])
    come.set()
    await coalescer.drain()
    assert served == [[1, 3]]
