"""Group commit: calls that arrive while a batch is being written are written together in the next batch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from penstock.core.errors import DatabaseUnavailable

Item = TypeVar("Item")


class _Waiting(NamedTuple, Generic[Item]):
    item: Item
    weight: int
    done: asyncio.Future[None]


class GroupCommit(Generic[Item]):
    """Runs items in batches: one batch at a time, or two while a large one is waiting.

    Args:
        run: Processes a batch and stores each item's result in the item.
        weigh: Returns the weight of an item.
        max_weight: The weight at which a batch is full.
        parallel_weight: If at least this weight is waiting, a second batch runs beside the first.
        gather: Called with the number of waiting items before a batch starts. It may wait for more items.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Item]], Awaitable[None]],
        *,
        weigh: Callable[[Item], int] = lambda item: 1,
        max_weight: int = 1000,
        parallel_weight: int | None = None,
        gather: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        self._run = run
        self._weigh = weigh
        self._max_weight = max_weight
        self._parallel_weight = parallel_weight
        self._gather = gather
        self._queue: deque[_Waiting[Item]] = deque()
        self._queued_weight = 0
        self._running = 0
        self._workers: set[asyncio.Task[None]] = set()

    async def submit(self, item: Item) -> None:
        """Wait until the item's batch is done. Raise the exception of the batch if it fails."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        weight = self._weigh(item)
        self._queue.append(_Waiting(item, weight, done))
        self._queued_weight += weight
        if self._running == 0 or (self._running == 1 and self._needs_second_worker()):
            self._running += 1
            worker = asyncio.create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        await done

    def _needs_second_worker(self) -> bool:
        return self._parallel_weight is not None and self._queued_weight >= self._parallel_weight

    async def drain(self) -> None:
        while self._workers:
            await asyncio.wait(self._workers)

    async def _work(self) -> None:
        try:
            while self._queue:
                if self._gather is not None:
                    await self._gather(len(self._queue))
                batch = self._take_batch()
                if batch:
                    await self._run_batch(batch)
                # Callers of the finished batch may submit again: let them join the next batch.
                await asyncio.sleep(0)
        finally:
            # Not in the done callback: an item that is submitted in between would wait forever.
            self._running -= 1

    def _take_batch(self) -> list[_Waiting[Item]]:
        batch: list[_Waiting[Item]] = []
        batch_weight = 0
        while self._queue and (not batch or batch_weight + self._queue[0].weight <= self._max_weight):
            waiting = self._queue.popleft()
            self._queued_weight -= waiting.weight
            if not waiting.done.cancelled():
                batch.append(waiting)
                batch_weight += waiting.weight
        return batch

    async def _run_batch(self, batch: list[_Waiting[Item]]) -> None:
        try:
            await self._run([waiting.item for waiting in batch])
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, DatabaseUnavailable):
                # One item caused the error. Run each alone, so that the others succeed.
                for waiting in batch:
                    await self._run_batch([waiting])
                return
            for waiting in batch:
                if not waiting.done.done():
                    waiting.done.set_exception(error)
        except BaseException:
            for waiting in batch:
                waiting.done.cancel()
            raise
        else:
            for waiting in batch:
                if not waiting.done.done():
                    waiting.done.set_result(None)
