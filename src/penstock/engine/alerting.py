"""What rules make of results, in a transaction that somebody else has begun: a cycle's, or that of who follows a queue.

A window that a rule has looked at changes nothing the second time, so it does not matter if both look at it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.core import json
from penstock.db.statements import Statements
from penstock.stream.rules import Alert, KeyState, Rule, look

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.catalog import Catalog
    from penstock.log.queue import Queue

_logger = logging.getLogger("penstock.engine")
_sql = Statements("penstock.engine", "alerting.sql")


@dataclass(frozen=True, slots=True)
class Result:
    """A result as a rule sees it: whose it is, what it says, and when it was there."""

    key: str
    row: Mapping[str, Any]
    at: datetime


async def rules_on(conn: AsyncConnection[Any], queue: str) -> list[Rule]:
    """The rules that watch a queue, held until the transaction ends."""
    rows = await (await conn.execute(_sql["on_queue"], {"queue": queue})).fetchall()
    return [msgspec.convert(row[0], Rule) for row in rows]


async def ring(
    conn: AsyncConnection[Any], catalog: Catalog, sink: str, closed: Sequence[bytes], now: datetime
) -> list[tuple[Queue, list[Alert]]]:
    """Let the rules of a queue look at windows that have closed: the alerts, and the queue that they go to."""
    found: list[tuple[Queue, list[Alert]]] = []
    for rule in await rules_on(conn, sink) if closed else ():
        queue = await catalog.find(rule.alerts)
        if queue is None:
            _logger.warning("rule %r is not looked at: its queue %r is gone, save it again", rule.name, rule.alerts)
            continue
        rows = [json.decode(line) for line in closed]
        alerts = await look_at(conn, rule, [Result(row["key"] or "", row, now) for row in rows])
        if alerts:
            found.append((queue, alerts))
    return found


async def look_at(conn: AsyncConnection[Any], rule: Rule, results: Sequence[Result]) -> list[Alert]:
    """Let a rule look at results, in their order; what it remembers of them is stored, its alerts are answered."""
    states = await states_of(conn, rule, sorted({result.key for result in results}))
    seen: dict[str, datetime] = {}
    alerts: list[Alert] = []
    for result in results:
        states[result.key], alert = look(rule, states[result.key], result.key, result.row, result.at)
        seen[result.key] = max(result.at, seen.get(result.key, result.at))
        if alert is not None:
            alerts.append(alert)
    await keep(conn, rule, states, seen)
    return alerts


async def states_of(conn: AsyncConnection[Any], rule: Rule, keys: Sequence[str]) -> dict[str, KeyState]:
    """What a rule remembers of some keys."""
    rows = await (await conn.execute(_sql["states"], {"name": rule.name, "keys": list(keys)})).fetchall()
    return {**dict.fromkeys(keys, KeyState()), **{key: msgspec.convert(state, KeyState) for key, state in rows}}


async def keep(
    conn: AsyncConnection[Any], rule: Rule, states: Mapping[str, KeyState], seen: Mapping[str, datetime]
) -> None:
    """Store what a rule remembers, and when results of the keys were last there."""
    params = {
        "name": rule.name,
        "keys": list(states),
        "firing": [state.is_firing for state in states.values()],
        "since": [state.since for state in states.values()],
        "seen": [seen.get(key) for key in states],
        "is_seen": bool(seen),
        "states": [msgspec.json.encode(state).decode() for state in states.values()],
    }
    await conn.execute(_sql["keep"], params)


def alert_id(alert: Alert) -> str:
    """The same for the same alert, however often it is pushed."""
    return f"{alert.rule}/{alert.key}/{alert.since.isoformat()}/{alert.state}"[:1000]


def alert_line(alert: Alert) -> bytes:
    """An alert as the data of an event."""
    return json.encode({name: value for name, value in msgspec.to_builtins(alert).items() if value is not None})


def alert_key(alert: Alert) -> str:
    """The key of an alert's event."""
    return alert.key or alert.rule
