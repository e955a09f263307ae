"""How many bytes of bodies a process holds at once: beyond that it refuses, or has callers wait, and does not grow."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType

from penstock.server.problems import Problem, retry_after

#: What a push costs beside its body.
EACH_PUSH = 8 << 10
_PATIENCE_SECONDS = 5.0


class Budget:
    """Bytes that all requests, or all answers, of a process share."""

    def __init__(self, limit: int, what: str = "requests") -> None:
        self.what = what
        self.limit = limit
        self.held = 0
        self._freed = asyncio.Event()

    def hold(self) -> Hold:
        """A share for one request; what it holds is given back at the end."""
        return Hold(self)

    def free(self, size: int) -> None:
        """Take back so much, which somebody may wait for."""
        self.held -= size
        self._freed.set()

    async def freed(self) -> None:
        """Wait until something is given back."""
        self._freed.clear()
        await self._freed.wait()


class Hold:
    """What one request holds of the budget."""

    __slots__ = ("_budget", "_held")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._held = 0

    def __enter__(self) -> Hold:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release(self._held)

    def grow(self, size: int) -> None:
        """Hold so much more, or raise a problem if that is too much for all together."""
        budget = self._budget
        if budget.held + size > budget.limit:
            raise Problem(
                "overloaded",
                f"the server holds {budget.held:,} bytes of {budget.what}, of {budget.limit:,} at the most; come again",
                {"retry_after": 1.0},
                retry_after(1),
            )
        budget.held += size
        self._held += size

    async def reach(self, size: int) -> None:
        """Hold so much in all, once others have given enough back; if they do not for long, raise the problem."""
        budget = self._budget
        more = min(size, budget.limit) - self._held
        if more <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while budget.held + more > budget.limit:
                    await budget.freed()
        self.grow(more)

    def keep(self, size: int) -> None:
        """Give back what is more than so much."""
        self.release(self._held - size)

    def release(self, size: int) -> None:
        """Give so much back."""
        size = max(min(size, self._held), 0)
        self._held -= size
        if size:
            self._budget.free(size)
