"""Group commit: the first goes at once, what arrives meanwhile goes together in the next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from penstock.core.errors import DatabaseUnavailable

Item = TypeVar("Item")


class Coalescer(Generic[Item]):
    """Hands items to ``run`` in batches, one batch at a time, or two when a large one is waiting.

    Args:
        run: Does the work of a batch, and leaves each item's outcome in the item.
        weigh: How heavy an item is.
        most: The weight at which a batch is full.
        large: The waiting weight from which a second batch may run beside the first.
        gather: Waits for more to come, given how many there are, before a batch leaves.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Item]], Awaitable[None]],
        *,
        weigh: Callable[[Item], int] = lambda item: 1,
        most: int = 1000,
        large: int | None = None,
        gather: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        self._run = run
        self._weigh = weigh
        self._most = most
        self._large = large
        self._gather = gather
        self._waiting: deque[tuple[Item, int, asyncio.Future[None]]] = deque()
        self._weight = 0
        self._running = 0
        self._workers: set[asyncio.Task[None]] = set()

    async def submit(self, item: Item) -> None:
        """Wait until the item's batch is done, or raise what it raised."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        weight = self._weigh(item)
        self._waiting.append((item, weight, done))
        self._weight += weight
        if self._running == 0 or (self._running == 1 and self._large is not None and self._weight >= self._large):
            self._running += 1
            worker = asyncio.create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        await done

    async def drain(self) -> None:
        """Wait until nothing is waiting or under way."""
        while self._workers:
            await asyncio.wait(self._workers)

    async def _work(self) -> None:
        try:
            while self._waiting:
                if self._gather is not None:
                    await self._gather(len(self._waiting))
                batch = self._take()
                if batch:
                    await self._serve(batch)
                # Those who were just answered may have more: let them come aboard before the next one leaves.
                await asyncio.sleep(0)
        finally:
            # At once, and not when the task is seen to be done: who comes in between would wait for nobody.
            self._running -= 1

    def _take(self) -> list[tuple[Item, asyncio.Future[None]]]:
        batch: list[tuple[Item, asyncio.Future[None]]] = []
        weight = 0
        while self._waiting and (not batch or weight + self._waiting[0][1] <= self._most):
            item, more, done = self._waiting.popleft()
            self._weight -= more
            if not done.cancelled():
                batch.append((item, done))
                weight += more
        return batch

    async def _serve(self, batch: list[tuple[Item, asyncio.Future[None]]]) -> None:
        try:
            await self._run([item for item, _ in batch])
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, DatabaseUnavailable):
                # One of them is to blame: each goes alone, so that the others are not refused with it.
                for alone in batch:
                    await self._serve([alone])
                return
            for _, done in batch:
                if not done.done():
                    done.set_exception(error)
        except BaseException:
            for _, done in batch:
                done.cancel()
            raise
        else:
            for _, done in batch:
                if not done.done():
                    done.set_result(None)
