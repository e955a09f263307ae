"""How many bytes of bodies a process holds at once: beyond that it refuses, and does not grow."""

from __future__ import annotations

from types import TracebackType

from penstock.server.problems import Problem, retry_after

#: What a push costs beside its body.
EACH_PUSH = 8 << 10


class Budget:
    """Bytes that all requests of a process share."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def hold(self) -> Hold:
        """A share for one request; what it holds is given back at the end."""
        return Hold(self)


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
                f"the server holds {budget.held:,} bytes of requests and no more than {budget.limit:,}; send it again",
                {"retry_after": 1.0},
                retry_after(1),
            )
        budget.held += size
        self._held += size

    def release(self, size: int) -> None:
        """Give so much back."""
        size = min(size, self._held)
        self._held -= size
        self._budget.held -= size
