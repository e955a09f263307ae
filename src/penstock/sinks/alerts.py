"""Follows the results of queries and pushes alerts, each once.

What a rule remembers, its alerts and how far it has read are one transaction. Windows that a query closes have been
looked at by then, in the cycle that closed them; this is for what no cycle brings: keys that fall silent, windows that
are open, and queues that no query writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.core import json
from penstock.core.errors import NotFound
from penstock.db.statements import Statements
from penstock.engine.alerting import Result, alert_id, alert_key, alert_line, keep, look_at, states_of
from penstock.engine.rulebook import RuleInfo, Rules
from penstock.log.log import Batch
from penstock.sinks.contract import TransactionalSink
from penstock.stream.rules import Alert, KeyState, Rule, miss, peek

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.event import Event

__all__ = ["Alerts", "RuleInfo", "Rules"]

_sql = Statements("penstock.sinks", "alerts.sql")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Alerts(TransactionalSink):
    """Watches the results in a rule's queue; add it to the runner for that queue, as ``Rules.watch`` does."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.name = f"rule:{rule.name}"[:200]
        if rule.condition.kind == "absent":
            self.tick_seconds = min(max(rule.condition.limit / 4, 0.1), 10.0)
        elif rule.live is not None:
            self.tick_seconds = 1.0
        self._looked_at = _EPOCH

    async def write_in(self, connection: AsyncConnection[Any], events: Sequence[Event]) -> Sequence[Batch]:
        """Look at results, or where there are none at what time has brought about; answer the alerts."""
        row = await (await connection.execute(_sql["lock"], {"name": self.rule.name})).fetchone()
        if row is None:
            raise NotFound(f"there is no rule {self.rule.name!r} any more: save it again, or stop watching")
        rule = msgspec.convert(row[0], Rule)
        if events:
            alerts = await self._look(connection, rule, events)
        elif rule.condition.kind == "absent":
            alerts = await self._miss(connection, rule, now=row[1], since=row[2])
        else:
            alerts = await self._peek(connection, rule, now=row[1])
        return [Batch(rule.alerts, [_event(alert) for alert in alerts])] if alerts else []

    async def _look(self, conn: AsyncConnection[Any], rule: Rule, events: Sequence[Event]) -> list[Alert]:
        return await look_at(conn, rule, [_result(event) for event in events])

    async def _peek(self, conn: AsyncConnection[Any], rule: Rule, *, now: datetime) -> list[Alert]:
        params = {"query": rule.live, "after": self._looked_at}
        rows = await (await conn.execute(_sql["open_windows"], params)).fetchall()
        if not rows:
            return []
        states = await states_of(conn, rule, sorted({row[0] for row in rows}))
        changed: dict[str, KeyState] = {}
        alerts: list[Alert] = []
        for key, start, end, value, _ in rows:
            row = {**(value if isinstance(value, dict) else {"value": value})}
            row |= {"window_start": start.isoformat(), "window_end": end.isoformat()}
            states[key], alert = peek(rule, states[key], key, row, now)
            if alert is not None:
                alerts.append(alert)
                changed[key] = states[key]
        if changed:
            await keep(conn, rule, changed, {})
        else:
            # Not before the alerts are committed: a second look at the same rows finds the rule firing.
            self._looked_at = rows[-1][4]
        return alerts

    async def _miss(self, conn: AsyncConnection[Any], rule: Rule, *, now: datetime, since: datetime) -> list[Alert]:
        if rule.expect:
            await conn.execute(_sql["expect"], {"name": rule.name, "keys": list(rule.expect), "since": since})
        params = {"name": rule.name, "seconds": rule.condition.limit}
        rows = await (await conn.execute(_sql["missing"], params)).fetchall()
        states: dict[str, KeyState] = {}
        alerts: list[Alert] = []
        for key, state in rows:
            states[key], alert = miss(rule, msgspec.convert(state, KeyState), key, now)
            if alert is not None:
                alerts.append(alert)
        if states:
            await keep(conn, rule, states, {})
        return alerts


def _result(event: Event) -> Result:
    """Whose result it is: the window's key, which need not be the event's."""
    row = event.data if isinstance(event.data, Mapping) else {"value": event.data}
    named = row.get("key")
    return Result(named if isinstance(named, str) else event.key or "", row, event.appended_at)


def _event(alert: Alert) -> dict[str, Any]:
    return {"key": alert_key(alert), "id": alert_id(alert), "data": json.decode(alert_line(alert))}
