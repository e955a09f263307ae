"""Store, list and delete the rules of a database. ``penstock.stream.rules`` defines and evaluates them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from psycopg import AsyncConnection

from penstock.core.errors import NotFound, QueueFull
from penstock.db.statements import Statements
from penstock.engine.alerts.evaluate import AlertEvent, alert_batch, alert_event
from penstock.log.log import Log
from penstock.stream.rule_evaluation import KeyState, clear_alert
from penstock.stream.rules import Rule

_logger = logging.getLogger("penstock.engine")
_sql = Statements("penstock.engine.alerts", "store.sql")


@dataclass(frozen=True, slots=True)
class RuleInfo:
    """A stored rule, and for how many keys it fires."""

    rule: Rule
    firing: int


class FiringAlert(NamedTuple):
    """A rule that fires for a key."""

    rule: str
    key: str
    since: datetime


class RuleStore:
    def __init__(self, log: Log) -> None:
        self._log = log

    async def save(self, rule: Rule) -> None:
        """Store a rule, and create its alert queue if needed. A changed rule starts without state."""
        params = {
            "name": rule.name,
            "queue": rule.queue,
            "alerts": rule.alerts,
            "definition": msgspec.json.encode(rule).decode(),
        }
        if await self._log.catalog.find(rule.alerts) is None:
            await self._log.configure(rule.alerts, partitioning="hash", partitions=1)
        async with self._log.database.connection() as conn, conn.transaction():
            before = await self._load(conn, "lock", rule.name)
            row = await (await conn.execute(_sql["save"], params)).fetchone()
            if row is not None and before is not None:
                await self._resolve_alerts(conn, before, "the rule was changed")

    async def all(self) -> list[RuleInfo]:
        async with self._log.database.connection() as conn:
            rows = await (await conn.execute(_sql["list"])).fetchall()
        return [RuleInfo(msgspec.convert(definition, Rule), firing) for definition, firing in rows]

    async def find(self, name: str) -> Rule | None:
        async with self._log.database.connection() as conn:
            return await self._load(conn, "find", name)

    async def delete(self, name: str) -> bool:
        """Delete a rule and resolve its alerts; False if there is no such rule."""
        async with self._log.database.connection() as conn, conn.transaction():
            rule = await self._load(conn, "lock", name)
            if rule is None:
                return False
            await self._resolve_alerts(conn, rule, "the rule was deleted")
            await conn.execute(_sql["delete"], {"name": name})
        return True

    async def firing(self) -> list[FiringAlert]:
        """Return the alerts that are firing now, oldest first."""
        async with self._log.database.connection() as conn:
            rows = await (await conn.execute(_sql["firing"])).fetchall()
        return [FiringAlert._make(row) for row in rows]

    async def _load(self, conn: AsyncConnection[Any], statement: str, name: str) -> Rule | None:
        row = await (await conn.execute(_sql[statement], {"name": name})).fetchone()
        return None if row is None else msgspec.convert(row[0], Rule)

    async def _resolve_alerts(self, conn: AsyncConnection[Any], rule: Rule, reason: str) -> None:
        """Delete the state of a rule and resolve its firing alerts."""
        rows = await (await conn.execute(_sql["delete_states"], {"name": rule.name})).fetchall()
        alerts: list[AlertEvent] = []
        for key, stored, now in rows:
            state = msgspec.convert(stored, KeyState)
            alert = clear_alert(rule, state, key, now, reason)
            if alert is not None:
                alerts.append(alert_event(alert, state.turns + 1))
        if not alerts:
            return
        try:
            await self._log.transact([], [alert_batch(rule, alerts)], connection=conn)
        except (QueueFull, NotFound) as error:
            # A full alert queue must not prevent the deletion of the rule that fills it.
            _logger.warning("rule %r: its firing alerts are not resolved in the queue: %s", rule.name, error)
