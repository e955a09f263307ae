"""Evaluate rules on results and produce alerts, within the caller's transaction.

The caller is the commit of a cycle or the ``Alerts`` sink. Evaluating the same window twice changes nothing, so both
may evaluate it. A result without ``window_end`` cannot be recognized as seen; the sink leaves such windows to cycles.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from psycopg import AsyncConnection

from penstock.core import json
from penstock.db.statements import Statements
from penstock.engine.alerts.alert_events import AlertEvent, alert_event
from penstock.log.catalog import Catalog
from penstock.log.event import Event
from penstock.log.queue import Queue
from penstock.stream.rule_evaluation import KeyState, evaluate_closed_window
from penstock.stream.rules import Rule

_logger = logging.getLogger("penstock.engine")
_sql = Statements("penstock.engine.alerts", "evaluate.sql")


@dataclass(frozen=True, slots=True)
class RuleInput:
    key: str
    row: Mapping[str, Any]
    #: When the result was written.
    at: datetime


async def evaluate_rules(
    conn: AsyncConnection[Any],
    catalog: Catalog,
    sink: str,
    closed: Sequence[tuple[str | None, bytes]],
    ends: Sequence[datetime | None],
    now: datetime,
) -> list[tuple[Queue, list[AlertEvent]]]:
    """Evaluate the rules of a sink queue on closed windows, and return the alerts by their queue.

    ``ends`` has the end of each window whose JSON does not contain it, and None for the others.
    """
    fired: list[tuple[Queue, list[AlertEvent]]] = []
    rules = await _lock_rules(conn, sink) if closed else []
    if not rules:
        return fired
    results = [_to_input(key, line, end, now) for (key, line), end in zip(closed, ends, strict=True)]
    for rule in rules:
        queue = await catalog.find(rule.alerts)
        if queue is None:
            _logger.warning(
                "rule %r is not evaluated, because its queue %r does not exist; save the rule again to create it",
                rule.name,
                rule.alerts,
            )
            continue
        alerts = await evaluate_rule(conn, rule, results)
        if alerts:
            fired.append((queue, alerts))
    return fired


async def evaluate_rule(conn: AsyncConnection[Any], rule: Rule, results: Sequence[RuleInput]) -> list[AlertEvent]:
    """Evaluate a rule on results in their order, store its state and return its alerts."""
    keys = sorted({result.key for result in results})
    states = await load_states(conn, rule, keys)
    silenced = await load_silenced(conn, rule, keys)
    seen: dict[str, datetime] = {}
    alerts: list[AlertEvent] = []
    for result in results:
        states[result.key], alert = evaluate_closed_window(
            rule, states[result.key], result.key, result.row, result.at, is_silenced=result.key in silenced
        )
        seen[result.key] = max(result.at, seen.get(result.key, result.at))
        if alert is not None:
            alerts.append(alert_event(alert, states[result.key].turns))
    await store_states(conn, rule, states, seen)
    return alerts


async def load_states(conn: AsyncConnection[Any], rule: Rule, keys: Sequence[str]) -> dict[str, KeyState]:
    """Return the stored states of a rule; keys without one have an empty state."""
    rows = await (await conn.execute(_sql["states"], {"name": rule.name, "keys": list(keys)})).fetchall()
    return {**dict.fromkeys(keys, KeyState()), **{key: msgspec.convert(state, KeyState) for key, state in rows}}


async def load_silenced(conn: AsyncConnection[Any], rule: Rule, keys: Sequence[str]) -> frozenset[str]:
    """Return the keys among these for which a rule is silenced."""
    rows = await (await conn.execute(_sql["silenced"], {"name": rule.name, "keys": ["", *keys]})).fetchall()
    silenced = frozenset(key for (key,) in rows)
    return frozenset(keys) if "" in silenced else silenced


async def store_states(
    conn: AsyncConnection[Any], rule: Rule, states: Mapping[str, KeyState], seen: Mapping[str, datetime]
) -> None:
    """Store the states of a rule; ``seen`` has the time of each key's last result."""
    params = {
        "name": rule.name,
        "keys": list(states),
        "firing": [state.is_firing for state in states.values()],
        "since": [state.since for state in states.values()],
        "seen": [seen.get(key) for key in states],
        "is_seen": bool(seen),
        "states": [msgspec.json.encode(state).decode() for state in states.values()],
    }
    await conn.execute(_sql["store_states"], params)


async def _lock_rules(conn: AsyncConnection[Any], queue: str) -> list[Rule]:
    rows = await (await conn.execute(_sql["lock_rules"], {"queue": queue})).fetchall()
    return [msgspec.convert(definition, Rule) for (definition,) in rows]


def rule_input(event: Event) -> RuleInput:
    """Return an event as the input of a rule; the key of a window can differ from the key of the event."""
    row = event.data if isinstance(event.data, Mapping) else {"value": event.data}
    key = row.get("key")
    return RuleInput(key if isinstance(key, str) else event.key or "", row, event.appended_at)


def _to_input(key: str | None, line: bytes, end: datetime | None, now: datetime) -> RuleInput:
    row = json.decode(line)
    return RuleInput(key or "", row if end is None else {**row, "window_end": end.isoformat()}, now)
