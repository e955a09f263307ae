"""``Alerts``: evaluates a rule on the events of a queue and pushes its alerts, each once.

The state of the rule, its alerts and the position in the queue are one transaction. The cycle that closes a window of a
query evaluates the rules too. This sink adds the cases that no cycle handles: keys without results, windows that are
still open, and queues that no query writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.core.clock import EPOCH
from penstock.core.errors import NotFound
from penstock.db.scalar import fetch_scalar
from penstock.db.statements import Statements
from penstock.engine.alerts.alert_events import AlertEvent, alert_batch, alert_event
from penstock.engine.alerts.evaluate import evaluate_rule, load_silenced, load_states, rule_input, store_states
from penstock.engine.alerts.rule_store import RuleInfo, RuleStore
from penstock.log.write.encode.batch import Batch
from penstock.sinks.base import TransactionalSink
from penstock.stream.rule_evaluation import KeyState, evaluate_absence, evaluate_open_window, window_end
from penstock.stream.rules import Rule

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.event import Event

__all__ = ["Alerts", "RuleInfo", "RuleStore"]

_sql = Statements("penstock.sinks", "alerts.sql")


@dataclass(frozen=True, slots=True)
class _OpenWindow:
    """An open window whose value fires the rule."""

    updated_at: datetime
    key: str
    start: datetime
    row: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _OpenWindowScan:
    """The open windows that fire a rule, and the time of the last change that the scan has seen."""

    rule: Rule
    windows: Sequence[_OpenWindow]
    until: datetime


class Alerts(TransactionalSink):
    """Evaluates a rule. Add it to the runner for the rule's queue, as ``penstock rule run`` does.

    Args:
        rule: The rule.
        page_size: How many open windows are fetched at a time.
    """

    def __init__(self, rule: Rule, *, page_size: int = 10_000) -> None:
        self.rule = rule
        self.name = f"rule:{rule.name}"[:200]
        if rule.condition.kind == "absent":
            self.tick_seconds = min(max(rule.condition.limit / 4, 0.1), 10.0)
        elif rule.live is not None:
            self.tick_seconds = 1.0
        self._page_size = page_size
        self._scanned_until = EPOCH

    async def write_in(self, connection: AsyncConnection[Any], events: Sequence[Event]) -> Sequence[Batch]:
        """Evaluate the rule on events; without events on open windows or missing keys. Return the alerts."""
        # The scan can be long, so it runs before the lock: every commit that closes windows waits for that lock.
        scan = None if events else await self._scan_open_windows(connection)
        row = await (await connection.execute(_sql["lock"], {"name": self.rule.name})).fetchone()
        if row is None:
            raise NotFound(f"the rule {self.rule.name!r} does not exist any more: save it again, or stop this sink")
        definition, now, updated_at = row
        rule = msgspec.convert(definition, Rule)
        if events:
            alerts = await self._evaluate(connection, rule, events)
        elif rule.condition.kind == "absent":
            alerts = await self._evaluate_missing_keys(connection, rule, now=now, since=updated_at)
        else:
            alerts = await self._evaluate_open_windows(connection, rule, scan, now=now)
        return [alert_batch(rule, alerts)] if alerts else []

    async def _evaluate(self, conn: AsyncConnection[Any], rule: Rule, events: Sequence[Event]) -> list[AlertEvent]:
        inputs = [rule_input(event) for event in events]
        others = [given for given in inputs if window_end(given.row) is not None]
        if len(others) < len(inputs) and await fetch_scalar(conn, _sql["is_selected"], {"queue": rule.queue}):
            # The cycle that closed the windows has evaluated them.
            inputs = others
        return await evaluate_rule(conn, rule, inputs)

    async def _scan_open_windows(self, conn: AsyncConnection[Any]) -> _OpenWindowScan | None:
        """Find the open windows that fire the rule, among those that have changed since the last scan."""
        definition = await fetch_scalar(conn, _sql["definition"], {"name": self.rule.name})
        rule = None if definition is None else msgspec.convert(definition, Rule)
        if rule is None or rule.live is None:
            return None
        if rule != self.rule:
            self.rule, self._scanned_until = rule, EPOCH
        firing: list[_OpenWindow] = []
        until = self._scanned_until
        async with conn.cursor("open_windows") as windows:
            windows.itersize = self._page_size
            await windows.execute(_sql["open_windows"], {"query": rule.live, "since": self._scanned_until})
            async for key, start, end, value, updated_at in windows:
                until = max(until, updated_at)
                row = {**value} if isinstance(value, dict) else {"value": value}
                row |= {"window_start": start.isoformat(), "window_end": end.isoformat()}
                if evaluate_open_window(rule, KeyState(), key, row, updated_at)[1] is not None:
                    firing.append(_OpenWindow(updated_at, key, start, row))
        firing.sort(key=attrgetter("updated_at", "key", "start"))
        return _OpenWindowScan(rule, firing, until)

    async def _evaluate_open_windows(
        self, conn: AsyncConnection[Any], rule: Rule, scan: _OpenWindowScan | None, *, now: datetime
    ) -> list[AlertEvent]:
        if scan is None or scan.rule != rule:
            return []  # the rule was changed after the scan: the next tick scans again
        keys = sorted({window.key for window in scan.windows})
        states, silenced = await load_states(conn, rule, keys), await load_silenced(conn, rule, keys)
        changed: dict[str, KeyState] = {}
        alerts: list[AlertEvent] = []
        for window in scan.windows:
            key = window.key
            if key in silenced:
                continue
            states[key], alert = evaluate_open_window(rule, states[key], key, window.row, now)
            if alert is not None:
                alerts.append(alert_event(alert, states[key].turns))
                changed[key] = states[key]
        if changed:
            await store_states(conn, rule, changed, {})
        elif not silenced:
            # Only without alerts, because the transaction can fail: the next scan then reads the same rows again.
            self._scanned_until = scan.until
        return alerts

    async def _evaluate_missing_keys(
        self, conn: AsyncConnection[Any], rule: Rule, *, now: datetime, since: datetime
    ) -> list[AlertEvent]:
        if rule.expect:
            await conn.execute(_sql["expect"], {"name": rule.name, "keys": list(rule.expect), "since": since})
        # Events after the oldest unread one may not have been evaluated, so a key is missing only before that.
        params: dict[str, Any] = {"queue": rule.queue, "group": self.name}
        oldest_unread = await fetch_scalar(conn, _sql["unread"], params)
        until = now if oldest_unread is None else min(now, oldest_unread)
        params = {"name": rule.name, "seconds": rule.condition.limit, "now": until}
        rows = await (await conn.execute(_sql["missing"], params)).fetchall()
        states: dict[str, KeyState] = {}
        alerts: list[AlertEvent] = []
        silenced = await load_silenced(conn, rule, [key for key, _ in rows])
        for key, state in rows:
            if key in silenced:
                continue
            states[key], alert = evaluate_absence(rule, msgspec.convert(state, KeyState), key, now)
            if alert is not None:
                alerts.append(alert_event(alert, states[key].turns))
        if states:
            await store_states(conn, rule, states, {})
        return alerts
