"""The gates of a query: what waits, and limits that change while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.client.arguments import check_number
from penstock.engine.gates.admin import GateChange, GateInfo

if TYPE_CHECKING:
    from penstock.client.session import Session

_LONGEST = 366 * 86_400


@dataclass(frozen=True, slots=True)
class GateHandle:
    """The gates of one query.

    ::

        gate = q.gate("ota-limiter")
        await gate.set("tenant-7", rate=250)
        await gate.hold("tenant-7", seconds=30)  # the partner has answered 429 with Retry-After: 30

    A key's own limits count before those that were set for all, which count before those of the stream.
    """

    _session: Session = field(repr=False)
    query: str
    """The query's id."""

    async def list(self, key: str | None = None) -> Sequence[GateInfo]:
        """Its gates, lane by lane, those that hold something back first."""
        return await self._session.transport.gates(self.query, key)

    async def set(
        self,
        key: str | None = None,
        *,
        rate: float | None = None,
        capacity: float | None = None,
        limit: float | None = None,
        window_seconds: float | None = None,
        weight: int | None = None,
        gate: int | None = None,
        clear: bool = False,
    ) -> None:
        """Change limits for a key, or for all; ``clear`` forgets what was changed before."""
        await self._session.transport.change_gate(
            self.query,
            GateChange(
                key=key,
                gate=gate,
                rate=rate,
                capacity=capacity,
                limit=limit,
                window_seconds=window_seconds,
                weight=weight,
                clear=clear,
            ),
        )

    async def pause(self, key: str | None = None) -> None:
        """Let nothing through until it is resumed."""
        await self._session.transport.change_gate(self.query, GateChange(key=key, paused=True))

    async def resume(self, key: str | None = None) -> None:
        """Let through again what the limits allow."""
        await self._session.transport.change_gate(self.query, GateChange(key=key, paused=False, hold_seconds=0))

    async def hold(self, key: str | None = None, *, seconds: float) -> None:
        """Let nothing through for so long, and begin with an empty bucket then, as a partner's Retry-After asks."""
        check_number("seconds", seconds, 0, _LONGEST)
        await self._session.transport.hold_gate(self.query, key, seconds)
