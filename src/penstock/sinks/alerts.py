"""Follows the results of queries and pushes alerts, each once.

What a rule remembers, its alerts and how far it has read are one transaction. Windows that a query closes have been
looked at by then, in the cycle that closed them; this is for what no cycle brings: keys that fall silent, windows that
are open, and queues that no query writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.core.errors import NotFound
from penstock.core.timestamps import EPOCH
from penstock.db.statements import Statements
from penstock.engine.alerts.evaluate import Result, Rung, alert_batch, keep, look_at, rung, states_of
from penstock.engine.alerts.store import RuleInfo, Rules
from penstock.log.log import Batch
from penstock.sinks.base import TransactionalSink
from penstock.stream.rules import KeyState, Rule, end_of, miss, peek

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.event import Event

__all__ = ["Alerts", "RuleInfo", "Rules"]

_sql = Statements("penstock.sinks", "alerts.sql")
#: So many open windows are fetched at a time.
_PAGE = 10_000


@dataclass(frozen=True, slots=True)
class _Window:
    """An open window that is above the limit already."""

    at: datetime
    key: str
    start: datetime
    row: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Glance:
    """What was found among the open windows, by which rule, and up to when they had changed."""

    rule: Rule
    windows: Sequence[_Window]
    until: datetime


class Alerts(TransactionalSink):
    """Watches the results in a rule's queue; add it to the runner for that queue, as ``penstock rule run`` does."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.name = f"rule:{rule.name}"[:200]
        if rule.condition.kind == "absent":
            self.tick_seconds = min(max(rule.condition.limit / 4, 0.1), 10.0)
        elif rule.live is not None:
            self.tick_seconds = 1.0
        self._looked_at = EPOCH

    async def write_in(self, connection: AsyncConnection[Any], events: Sequence[Event]) -> Sequence[Batch]:
        """Look at results, or where there are none at what time has brought about; answer the alerts."""
        # Before the rule is held, which every commit that closes windows waits for: there may be many.
        glance = None if events else await self._glance(connection)
        row = await (await connection.execute(_sql["lock"], {"name": self.rule.name})).fetchone()
        if row is None:
            raise NotFound(f"there is no rule {self.rule.name!r} any more: save it again, or stop watching")
        rule = msgspec.convert(row[0], Rule)
        if events:
            alerts = await self._look(connection, rule, events)
        elif rule.condition.kind == "absent":
            alerts = await self._miss(connection, rule, now=row[1], since=row[2])
        else:
            alerts = await self._peek(connection, rule, glance, now=row[1])
        return [alert_batch(rule, alerts)] if alerts else []

    async def _look(self, conn: AsyncConnection[Any], rule: Rule, events: Sequence[Event]) -> list[Rung]:
        results = [_result(event) for event in events]
        if any(end_of(result.row) is None for result in results):
            row = await (await conn.execute(_sql["is_selected"], {"queue": rule.queue})).fetchone()
            if row is not None and row[0]:
                # The cycle that closed their windows has looked at them, and nothing tells that here.
                results = [result for result in results if end_of(result.row) is not None]
        return await look_at(conn, rule, results)

    async def _glance(self, conn: AsyncConnection[Any]) -> _Glance | None:
        """Look through the open windows that have changed since the last time."""
        row = await (await conn.execute(_sql["definition"], {"name": self.rule.name})).fetchone()
        rule = None if row is None else msgspec.convert(row[0], Rule)
        if rule is None or rule.live is None:
            return None
        if rule != self.rule:
            self.rule, self._looked_at = rule, EPOCH
        found: list[_Window] = []
        until = self._looked_at
        async with conn.cursor("open_windows") as windows:
            windows.itersize = _PAGE
            await windows.execute(_sql["open_windows"], {"query": rule.live, "since": self._looked_at})
            async for key, start, end, value, at in windows:
                until = max(until, at)
                told = {**value} if isinstance(value, dict) else {"value": value}
                told |= {"window_start": start.isoformat(), "window_end": end.isoformat()}
                if peek(rule, KeyState(), key, told, at)[1] is not None:
                    found.append(_Window(at, key, start, told))
        found.sort(key=attrgetter("at", "key", "start"))
        return _Glance(rule, found, until)

    async def _peek(
        self, conn: AsyncConnection[Any], rule: Rule, glance: _Glance | None, *, now: datetime
    ) -> list[Rung]:
        if glance is None or glance.rule != rule:
            return []  # it was changed meanwhile: the next look is by what it is now
        states = await states_of(conn, rule, sorted({window.key for window in glance.windows}))
        changed: dict[str, KeyState] = {}
        alerts: list[Rung] = []
        for window in glance.windows:
            key = window.key
            states[key], alert = peek(rule, states[key], key, window.row, now)
            if alert is not None:
                alerts.append(rung(alert, states[key].turns))
                changed[key] = states[key]
        if changed:
            await keep(conn, rule, changed, {})
        else:
            # Not before the alerts are committed: a second look at the same rows finds the rule firing.
            self._looked_at = glance.until
        return alerts

    async def _miss(self, conn: AsyncConnection[Any], rule: Rule, *, now: datetime, since: datetime) -> list[Rung]:
        if rule.expect:
            await conn.execute(_sql["expect"], {"name": rule.name, "keys": list(rule.expect), "since": since})
        # Of what came after the oldest that waits to be looked at, not all has been looked at.
        asked = await conn.execute(_sql["unread"], {"queue": rule.queue, "group": self.name})
        row = await asked.fetchone()
        until = now if row is None or row[0] is None else min(now, row[0])
        params = {"name": rule.name, "seconds": rule.condition.limit, "now": until}
        rows = await (await conn.execute(_sql["missing"], params)).fetchall()
        states: dict[str, KeyState] = {}
        alerts: list[Rung] = []
        for key, state in rows:
            states[key], alert = miss(rule, msgspec.convert(state, KeyState), key, now)
            if alert is not None:
                alerts.append(rung(alert, states[key].turns))
        if states:
            await keep(conn, rule, states, {})
        return alerts


def _result(event: Event) -> Result:
    """Whose result it is: the window's key, which need not be the event's."""
    row = event.data if isinstance(event.data, Mapping) else {"value": event.data}
    named = row.get("key")
    return Result(named if isinstance(named, str) else event.key or "", row, event.appended_at)
