"""The transport of a client: the log in this process, or a server over HTTP. Both have the same methods.

A client opens its transport, calls it concurrently from one event loop, and closes it. The transport raises the errors
of :mod:`penstock.core.errors`. A call that is cancelled leaves no lease behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from penstock.client.dead_letters import DeadLetterMapping, edit_function
from penstock.core.clock import Clock
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.engine.gates.gate_admin import GateAdmin, GateChange, GateInfo
from penstock.engine.results.result_reader import RowPage, RowRequest, read_page
from penstock.log.dead_letters.dead_letter import DeadLetterEdit, DeadLetterFilter, Redrive
from penstock.log.dead_letters.redrive import REDRIVE_LIMIT
from penstock.log.log import Log

if TYPE_CHECKING:
    from penstock.client.http.http_transport import HttpTransport


class DatabaseTransport(Log):
    """The log, mappings of dead letters, and the gates and results of queries."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        super().__init__(Database(settings), clock=clock)

    async def redrive_mapped(
        self, which: DeadLetterFilter, mapping: DeadLetterMapping, *, limit: int | None = REDRIVE_LIMIT
    ) -> Redrive:
        return await self.redrive(which, limit=limit, edit=edit_function(mapping))

    async def preview_mapping(
        self, which: DeadLetterFilter, mapping: DeadLetterMapping, *, limit: int = REDRIVE_LIMIT
    ) -> list[DeadLetterEdit]:
        return await self.preview_redrive(which, edit_function(mapping), limit=limit)

    async def gates(self, query: str | None, key: str | None = None) -> Sequence[GateInfo]:
        return await GateAdmin(self.database).list(query, key)

    async def change_gate(self, query: str, change: GateChange) -> None:
        await GateAdmin(self.database).change(query, change)

    async def hold_gate(self, query: str, key: str | None, seconds: float) -> None:
        await self.change_gate(query, GateChange(key=key, hold_seconds=seconds))

    async def result_rows(self, request: RowRequest) -> RowPage:
        return await read_page(self.database, request)


Transport: TypeAlias = "DatabaseTransport | HttpTransport"
