"""How many bytes of bodies a process holds at once: beyond that it refuses, or has callers wait, and does not grow."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from types import TracebackType
from typing import TypeAlias

from penstock.server.http.errors import Problem, retry_after

#: What a push costs beside its body.
EACH_PUSH = 8 << 10
_PATIENCE_SECONDS = 5.0
#: Those who wait: how much for, and what tells them that they have it.
_Line: TypeAlias = deque[tuple[int, asyncio.Future[None]]]


class Budget:
    """Bytes that all requests, or all answers, of a process share.

    Where it is said what is ``small``, a quarter is for that alone: a few who hold much for long, since what they send
    is read slowly, leave something for the many who need little. Of those who wait for room the first who came is the
    first to go on; who waits for much keeps nobody waiting who needs little.
    """

    def __init__(self, limit: int, what: str = "requests", small: int | None = None) -> None:
        self.what = what
        self.limit = limit
        self.held = 0
        self._small = limit if small is None else min(small, limit)
        #: What may be held while somebody holds more than a little.
        self.shared = limit if self._small == limit else limit - limit // 4
        self._waiting: tuple[_Line, _Line] = (deque(), deque())

    def hold(self) -> Hold:
        """A share for one request; what it holds is given back at the end."""
        return Hold(self)

    def free(self, size: int) -> None:
        """Take back so much, which somebody may wait for."""
        self.held -= size
        self._let_in()

    def room(self) -> int:
        """How much more may be held by those who have what they need; nothing, while others wait."""
        return 0 if any(self._waiting) else max(self.shared - self.held, 0)

    def at_most(self, size: int) -> int:
        """What is held of so much at the most: what is more than all may hold has to be alone."""
        return min(size, self.limit if size <= self._small else self.shared)

    def take(self, size: int) -> bool:
        """Hold so much, if there is room for it and nobody waits for that."""
        is_small = size <= self._small
        if self._waiting[not is_small] or not self._fits(size, is_small):
            return False
        self.held += size
        return True

    async def wait(self, size: int) -> bool:
        """Hold so much once there is room for it, after those who came before; false if there is none for long."""
        if self.take(size):
            return True
        line = self._waiting[size > self._small]
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append((size, turn))
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await turn
        except TimeoutError:
            # It may have been let in at the same moment.
            return not self._left(line, size, turn)
        except asyncio.CancelledError:
            if not self._left(line, size, turn):
                self.free(size)
            raise
        return True

    def _left(self, line: _Line, size: int, turn: asyncio.Future[None]) -> bool:
        """Whether somebody who does not wait any longer was not let in; those behind may be then."""
        if not turn.cancelled():
            return False
        with contextlib.suppress(ValueError):
            line.remove((size, turn))
        self._let_in()
        return True

    def _fits(self, size: int, is_small: bool) -> bool:
        return self.held + size <= (self.limit if is_small else self.shared)

    def _let_in(self) -> None:
        """Give those who wait what there is room for now."""
        for line, is_small in zip(self._waiting, (True, False), strict=True):
            while line:
                size, turn = line[0]
                if not turn.done():
                    if not self._fits(size, is_small):
                        break
                    self.held += size
                    turn.set_result(None)
                line.popleft()


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
            raise self.refusal()
        budget.held += size
        self._held += size

    async def reach(self, size: int) -> None:
        """Hold so much in all, once others have given enough back; if they do not for long, raise the problem."""
        size = self._budget.at_most(size)
        if size > self._held:
            # Whoever waited with something in his hands would keep others waiting.
            self.keep(0)
            if not await self._budget.wait(size):
                raise self.refusal()
            self._held = size

    def stretch(self, size: int, least: int = 0) -> int:
        """Hold up to so much in all, as far as there is room for it now; answers how much it is, 0 if not the least."""
        least = self._budget.at_most(least)
        if least > self._held:
            if not self._budget.take(least - self._held):
                return 0
            self._held = least
        more = max(min(size - self._held, self._budget.room()), 0)
        self._budget.held += more
        self._held += more
        return self._held

    def keep(self, size: int) -> None:
        """Hold just so much, which is there: what is more is given back, and what is not is held in any case."""
        more = size - self._held
        if more > 0:
            self._budget.held += more
            self._held = size
        else:
            self.release(-more)

    def refusal(self) -> Problem:
        """The problem that there is no room."""
        budget = self._budget
        return Problem(
            "overloaded",
            f"the server holds {budget.held:,} bytes of {budget.what}, of {budget.limit:,} at the most; come again",
            {"retry_after": 1.0},
            retry_after(1),
        )

    def release(self, size: int) -> None:
        """Give so much back."""
        size = max(min(size, self._held), 0)
        self._held -= size
        if size:
            self._budget.free(size)
