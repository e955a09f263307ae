"""A limit on the memory of all requests, or all responses, of a process. Beyond it, callers are refused or wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from types import TracebackType
from typing import NamedTuple

from penstock.server.http.errors import Problem, retry_after

#: Memory of a push beside its body.
PUSH_OVERHEAD_BYTES = 8 << 10
_WAIT_SECONDS = 5.0


class _Waiter(NamedTuple):
    size: int
    granted: asyncio.Future[None]


class MemoryBudget:
    """Bytes that all requests, or all responses, of a process share.

    With a ``small`` size, a quarter of the budget is only for reservations up to that size, so that a few slow clients
    with large responses leave memory for the others. Waiters are served in order of arrival, in two queues: a waiter
    for a large reservation does not delay small ones.

    Args:
        limit: Bytes that may be reserved in total.
        name: The name of the memory in the problem that a refused caller gets.
        small: The size up to which a reservation counts as small; None if all do.
        wait_seconds: How long a reservation waits for memory before it is refused.
    """

    def __init__(
        self, limit: int, name: str = "requests", small: int | None = None, wait_seconds: float = _WAIT_SECONDS
    ) -> None:
        self.name = name
        self.limit = limit
        self.used = 0
        self._small = limit if small is None else min(small, limit)
        #: Bytes available to reservations that are not small.
        self._large_limit = limit if self._small == limit else limit - limit // 4
        self._wait_seconds = wait_seconds
        self._small_waiters: deque[_Waiter] = deque()
        self._large_waiters: deque[_Waiter] = deque()

    def reserve(self) -> BudgetReservation:
        """Return an empty reservation. Leaving its context releases the memory."""
        return BudgetReservation(self)

    def release(self, size: int) -> None:
        self.used -= size
        self._wake_waiters()

    def available(self) -> int:
        """Return the bytes by which existing reservations may grow; none while others wait."""
        if self._small_waiters or self._large_waiters:
            return 0
        return max(self._large_limit - self.used, 0)

    def clamp(self, size: int) -> int:
        """Return the bytes to reserve for a size: at most the whole budget, which then has one owner."""
        return min(size, self.limit if size <= self._small else self._large_limit)

    def try_acquire(self, size: int) -> bool:
        """Reserve bytes if they are available and nobody waits for them."""
        if self._waiters(size) or not self._fits(size):
            return False
        self.used += size
        return True

    async def acquire(self, size: int) -> bool:
        """Wait until bytes are available and reserve them; return False after the timeout."""
        if self.try_acquire(size):
            return True
        waiter = _Waiter(size, asyncio.get_running_loop().create_future())
        self._waiters(size).append(waiter)
        try:
            async with asyncio.timeout(self._wait_seconds):
                await waiter.granted
        except TimeoutError:
            # The memory may have been granted at the same moment.
            return not self._withdraw(waiter)
        except asyncio.CancelledError:
            if not self._withdraw(waiter):
                self.release(size)
            raise
        return True

    def _waiters(self, size: int) -> deque[_Waiter]:
        return self._small_waiters if size <= self._small else self._large_waiters

    def _withdraw(self, waiter: _Waiter) -> bool:
        """Remove a waiter that gave up; return False if its memory was granted already."""
        if not waiter.granted.cancelled():
            return False
        with contextlib.suppress(ValueError):
            self._waiters(waiter.size).remove(waiter)
        self._wake_waiters()
        return True

    def _fits(self, size: int) -> bool:
        return self.used + size <= (self.limit if size <= self._small else self._large_limit)

    def _wake_waiters(self) -> None:
        """Grant the memory that is available now, in order of arrival."""
        for waiters in (self._small_waiters, self._large_waiters):
            while waiters:
                size, granted = waiters[0]
                if not granted.done():
                    if not self._fits(size):
                        break
                    self.used += size
                    granted.set_result(None)
                waiters.popleft()


class BudgetReservation:
    """Bytes of a budget that one request has reserved."""

    __slots__ = ("_budget", "_size")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._size = 0

    def __enter__(self) -> BudgetReservation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release(self._size)

    def grow(self, size: int) -> None:
        """Reserve more bytes at once, or raise a problem."""
        budget = self._budget
        if budget.used + size > budget.limit:
            raise self.refusal()
        budget.used += size
        self._size += size

    async def acquire(self, size: int) -> None:
        """Wait until this many bytes are reserved in total, or raise a problem after the timeout."""
        size = self._budget.clamp(size)
        if size > self._size:
            # A waiter that keeps memory could block another one.
            self.resize(0)
            if not await self._budget.acquire(size):
                raise self.refusal()
            self._size = size

    def grow_to(self, size: int, least: int = 0) -> int:
        """Reserve up to this many bytes in total without waiting; return the total, or 0 if less than ``least``."""
        least = self._budget.clamp(least)
        if least > self._size:
            if not self._budget.try_acquire(least - self._size):
                return 0
            self._size = least
        more = max(min(size - self._size, self._budget.available()), 0)
        self._budget.used += more
        self._size += more
        return self._size

    def resize(self, size: int) -> None:
        """Reserve exactly this many bytes, which are in use already: more than the budget has if need be."""
        more = size - self._size
        if more > 0:
            self._budget.used += more
            self._size = size
        else:
            self.release(-more)

    def release(self, size: int) -> None:
        """Release some of the bytes."""
        size = max(min(size, self._size), 0)
        self._size -= size
        if size:
            self._budget.release(size)

    def refusal(self) -> Problem:
        """Return the problem of a request that the budget has no room for."""
        budget = self._budget
        return Problem(
            "overloaded",
            f"the server holds {budget.used:,} bytes of {budget.name}, of at most {budget.limit:,}; try again later",
            {"retry_after": 1.0},
            retry_after(1),
        )
