"""The handle of a query's gates: list them and change their limits while the query runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict, Unpack

from penstock.client.client_session import ClientSession
from penstock.core.option_checks import check_number
from penstock.engine.gates.gate_admin import GateChange, GateInfo

_MAX_HOLD_SECONDS = 366 * 86_400


class GateLimits(TypedDict, total=False):
    """The arguments of :meth:`GateHandle.set`."""

    rate: float | None
    capacity: float | None
    limit: float | None
    window_seconds: float | None
    weight: int | None
    gate: int | None
    clear: bool


@dataclass(frozen=True, slots=True)
class GateHandle:
    """The gates of one query.

    ::

        gate = q.gate("ota-limiter")
        await gate.set("tenant-7", rate=250)
        await gate.hold("tenant-7", seconds=30)  # the API responded 429 with Retry-After: 30

    The limits of a key take precedence over the limits set for all keys, and those over the limits of the stream.
    """

    _session: ClientSession = field(repr=False)
    query: str
    """The query's id."""

    async def list(self, key: str | None = None) -> Sequence[GateInfo]:
        """Return the gates of each key, those with waiting events first."""
        return await self._session.transport.gates(self.query, key)

    async def set(self, key: str | None = None, **limits: Unpack[GateLimits]) -> None:
        """Change the limits of a key, or of all keys; ``clear`` removes earlier changes."""
        await self._session.transport.change_gate(self.query, GateChange(key=key, **limits))

    async def pause(self, key: str | None = None) -> None:
        """Let no events pass until :meth:`resume`."""
        await self._session.transport.change_gate(self.query, GateChange(key=key, paused=True))

    async def resume(self, key: str | None = None) -> None:
        """Let events pass again, within the limits."""
        await self._session.transport.change_gate(self.query, GateChange(key=key, paused=False, hold_seconds=0))

    async def hold(self, key: str | None = None, *, seconds: float) -> None:
        """Let no events pass for ``seconds``, then start with an empty bucket, as a Retry-After header asks."""
        check_number("seconds", seconds, 0, _MAX_HOLD_SECONDS)
        await self._session.transport.hold_gate(self.query, key, seconds)
