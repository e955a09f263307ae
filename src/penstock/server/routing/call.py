"""A call of an endpoint, as its handler sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from penstock.log.log import Log
from penstock.log.read.pop import MIN_POP_BYTES
from penstock.server.auth.authorize import require_queue, require_role
from penstock.server.auth.identity import Identity, Role
from penstock.server.http.errors import Problem
from penstock.server.http.memory_budget import BudgetReservation
from penstock.server.http.request import HttpRequest
from penstock.server.services import Services


@dataclass(slots=True)
class ApiCall:
    request: HttpRequest
    services: Services
    #: The decoded path parameters.
    path: Mapping[str, str]
    identity: Identity
    request_id: str
    #: Resources to release after the response was sent.
    until_sent: ExitStack
    #: Raises a problem if the caller is no longer authorized, for long responses; None while access control is off.
    reauthorize: Callable[[], Awaitable[object]] | None = None
    #: Whether the handler has checked the queues that it uses.
    has_checked_queues: bool = False
    #: Memory reserved for the response.
    reservation: BudgetReservation | None = None

    @property
    def log(self) -> Log:
        return self.services.log

    @property
    def caller(self) -> str:
        """The id of an API key or the subject of a token; "" while access control is off."""
        return self.identity.id

    def reserve_memory(self) -> BudgetReservation:
        """Return the memory reservation of a response that may be large. It is released after sending."""
        if self.reservation is None:
            self.reservation = self.until_sent.enter_context(self.services.response_memory.reserve())
        return self.reservation

    async def reserve_response(self, max_bytes: int) -> int:
        """Wait for memory for one chunk, reserve more if it is available, and return the bytes in total."""
        reservation = self.reserve_memory()
        await reservation.acquire(MIN_POP_BYTES)
        return reservation.grow_to(max_bytes)

    def require_access(self, queues: str | Iterable[str], *roles: Role) -> None:
        """Raise a problem unless the caller may use these queues, in one of these roles if any are given.

        A handler whose queues are not in the path calls it before it uses them.
        """
        self.has_checked_queues = True
        if roles:
            require_role(self.identity, frozenset(roles))
        for queue in (queues,) if isinstance(queues, str) else queues:
            require_queue(self.identity, queue)

    def require_access_silently(self, queues: str | Iterable[str], *roles: Role) -> None:
        """Call :meth:`require_access` for queues that the caller did not name: the problem does not name them."""
        try:
            self.require_access(queues, *roles)
        except Problem as problem:
            if "queue" in problem.facts:
                detail = "Insufficient permissions: this belongs to a queue that the key is not for"
                raise Problem(problem.kind, detail) from None
            raise

    def can_see(self, queue: str) -> bool:
        """Return whether the response may contain a queue."""
        self.has_checked_queues = True
        return self.identity.can_access(queue)

    def can_see_all(self) -> bool:
        """Return whether the response may contain all queues."""
        self.has_checked_queues = True
        return not self.identity.is_limited
