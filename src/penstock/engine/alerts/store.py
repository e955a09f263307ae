"""The rules of a database: stored, listed, forgotten, and what fires. What they decide is in ``stream.rules``."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.core.errors import NotFound, QueueFull
from penstock.db.statements import Statements
from penstock.engine.alerts.evaluate import Rung, alert_batch, rung
from penstock.stream.rules import KeyState, Rule, withdraw

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.log import Log

_logger = logging.getLogger("penstock.engine")
_sql = Statements("penstock.engine.alerts", "store.sql")


@dataclass(frozen=True, slots=True)
class RuleInfo:
    """A rule that is stored, and for how many keys it fires."""

    rule: Rule
    firing: int


class Rules:
    """The rules of a database."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def save(self, rule: Rule) -> None:
        """Store a rule, and make its queue of alerts if that is not there; one that was changed begins anew."""
        params = {
            "name": rule.name,
            "queue": rule.queue,
            "alerts": rule.alerts,
            "definition": msgspec.json.encode(rule).decode(),
        }
        if await self._log.catalog.find(rule.alerts) is None:
            await self._log.configure(rule.alerts, partitioning="hash", partitions=1)
        async with self._log.database.connection() as conn, conn.transaction():
            before = await self._lock(conn, rule.name)
            row = await (await conn.execute(_sql["save"], params)).fetchone()
            if row is not None and before is not None:
                await self._end(conn, before, "the rule was changed")

    async def all(self) -> list[RuleInfo]:
        """All of them, by name."""
        async with self._log.database.connection() as conn:
            rows = await (await conn.execute(_sql["list"])).fetchall()
        return [RuleInfo(msgspec.convert(definition, Rule), firing) for definition, firing in rows]

    async def delete(self, name: str) -> bool:
        """Forget a rule, and tell that it fires no longer; False if there is none of that name."""
        async with self._log.database.connection() as conn, conn.transaction():
            rule = await self._lock(conn, name)
            if rule is None:
                return False
            await self._end(conn, rule, "the rule was deleted")
            await conn.execute(_sql["delete"], {"name": name})
        return True

    async def firing(self) -> list[tuple[str, str, datetime]]:
        """What fires now: the rule, the key, and since when."""
        async with self._log.database.connection() as conn:
            rows: list[tuple[str, str, datetime]] = await (await conn.execute(_sql["firing"])).fetchall()
        return rows

    async def find(self, name: str) -> Rule | None:
        """The rule of this name."""
        async with self._log.database.connection() as conn:
            row = await (await conn.execute(_sql["find"], {"name": name})).fetchone()
        return None if row is None else msgspec.convert(row[0], Rule)

    async def _lock(self, conn: AsyncConnection[Any], name: str) -> Rule | None:
        row = await (await conn.execute(_sql["lock"], {"name": name})).fetchone()
        return None if row is None else msgspec.convert(row[0], Rule)

    async def _end(self, conn: AsyncConnection[Any], rule: Rule, why: str) -> None:
        """Forget what a rule remembers, and clear what fires: nobody else would."""
        rows = await (await conn.execute(_sql["start_over"], {"name": rule.name})).fetchall()
        alerts: list[Rung] = []
        for key, held, now in rows:
            state = msgspec.convert(held, KeyState)
            alert = withdraw(rule, state, key, now, why)
            if alert is not None:
                alerts.append(rung(alert, state.turns + 1))
        if not alerts:
            return
        try:
            await self._log.transact([], [alert_batch(rule, alerts)], connection=conn)
        except (QueueFull, NotFound) as error:
            # One that rings too often can be stopped all the same.
            _logger.warning("rule %r: that it fires no longer is not told: %s", rule.name, error)
