"""The limit of a view's state: a warning before it is reached, and an error before it is passed."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from psycopg import AsyncConnection

from penstock.core.errors import StateLimitReached
from penstock.core.formatting import number, size
from penstock.db.statements import Statements
from penstock.engine.views.view_size import WARNING_SHARE

_sql = Statements("penstock.engine.views", "view_size.sql")
_logger = logging.getLogger("penstock.engine")


@dataclass
class StateLimit:
    query_id: int
    name: str
    max_bytes: int
    has_ttl: bool
    _is_near: bool = field(default=False, init=False)

    async def check(self, conn: AsyncConnection[Any]) -> None:
        """Check the state in the transaction that commits a cycle, after the cycle has changed it.

        Raises:
            StateLimitReached: The state is too large. The transaction must not commit.
        """
        row = await (await conn.execute(_sql["state_bytes"], {"query": self.query_id})).fetchone()
        (used,) = row or (0,)
        if used > self.max_bytes:
            shorter = (
                "a lower state_ttl_seconds"
                if self.has_ttl
                else "state_ttl_seconds, which computes the view again (rebuild=True or --rebuild)"
            )
            raise StateLimitReached(
                f"the next cycle of the view {self.name!r} needs {number(used)} bytes of state, more than its "
                f"max_state_bytes of {number(self.max_bytes)}. The query stops, and the view stays as the cycle before "
                f"left it. Start it again with a larger max_state_bytes or {shorter}; it continues where it stopped"
            )
        was_near, self._is_near = self._is_near, used > WARNING_SHARE * self.max_bytes
        if self._is_near and not was_near:
            _logger.warning(
                "the state of the view %r has %s of its limit of %s: the query stops when it is reached. Start it with "
                "a larger max_state_bytes or a shorter state_ttl_seconds",
                self.name,
                size(used),
                size(self.max_bytes),
            )
