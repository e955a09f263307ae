"""What rules make of results, in a transaction that somebody else has begun: a cycle's, or that of who follows a queue.

A window that a rule has looked at changes nothing the second time, so it does not matter if both look at it. What does
not say when its window ended is not known again: who follows a queue leaves it to the cycles.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.core import json
from penstock.db.statements import Statements
from penstock.log.write.batch import Batch
from penstock.log.write.encode import MAX_ID_BYTES
from penstock.log.write.ndjson import Lines
from penstock.stream.rules import Alert, KeyState, Rule, look

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.catalog import Catalog
    from penstock.log.queue import Queue

_logger = logging.getLogger("penstock.engine")
_sql = Statements("penstock.engine.alerts", "evaluate.sql")


@dataclass(frozen=True, slots=True)
class Result:
    """A result as a rule sees it: whose it is, what it says, and when it was there."""

    key: str
    row: Mapping[str, Any]
    at: datetime


@dataclass(frozen=True, slots=True)
class Rung:
    """An alert as it is pushed."""

    key: str
    #: The same for the same alert, however often it is pushed, and of no other.
    id: str
    line: bytes


async def rules_on(conn: AsyncConnection[Any], queue: str) -> list[Rule]:
    """The rules that watch a queue, held until the transaction ends."""
    rows = await (await conn.execute(_sql["on_queue"], {"queue": queue})).fetchall()
    return [msgspec.convert(row[0], Rule) for row in rows]


async def ring(
    conn: AsyncConnection[Any],
    catalog: Catalog,
    sink: str,
    closed: Sequence[tuple[str | None, bytes]],
    ends: Sequence[datetime | None],
    now: datetime,
) -> list[tuple[Queue, list[Rung]]]:
    """Let the rules of a queue look at windows that have closed: the alerts, and the queue that they go to.

    The ends are those of windows that may not say so themselves.
    """
    found: list[tuple[Queue, list[Rung]]] = []
    rules = await rules_on(conn, sink) if closed else []
    # The same for all of them; decoded where there is one.
    results = [_closed(key, line, end, now) for (key, line), end in zip(closed, ends, strict=True)] if rules else []
    for rule in rules:
        queue = await catalog.find(rule.alerts)
        if queue is None:
            _logger.warning("rule %r is not looked at: its queue %r is gone, save it again", rule.name, rule.alerts)
            continue
        alerts = await look_at(conn, rule, results)
        if alerts:
            found.append((queue, alerts))
    return found


async def look_at(conn: AsyncConnection[Any], rule: Rule, results: Sequence[Result]) -> list[Rung]:
    """Let a rule look at results, in their order; what it remembers of them is stored, its alerts are answered."""
    states = await states_of(conn, rule, sorted({result.key for result in results}))
    seen: dict[str, datetime] = {}
    alerts: list[Rung] = []
    for result in results:
        states[result.key], alert = look(rule, states[result.key], result.key, result.row, result.at)
        seen[result.key] = max(result.at, seen.get(result.key, result.at))
        if alert is not None:
            alerts.append(rung(alert, states[result.key].turns))
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


def rung(alert: Alert, turn: int) -> Rung:
    """An alert as an event, by how often the rule had begun or ceased to fire for its key then."""
    rest = f"{alert.since.isoformat()}/{turn}/{alert.state}"
    id = f"{alert.rule}/{alert.key}/{rest}"
    if len(id.encode()) > MAX_ID_BYTES:
        id = f"{blake2b(f'{alert.rule}/{alert.key}'.encode(), digest_size=16).hexdigest()}/{rest}"
    told = {name: value for name, value in msgspec.to_builtins(alert).items() if value is not None}
    return Rung(alert.key or alert.rule, id, json.encode(told))


def alert_batch(rule: Rule, alerts: Sequence[Rung]) -> Batch:
    """Alerts as they are pushed into the queue of their rule."""
    lines = Lines([each.line for each in alerts], [each.key for each in alerts], [each.id for each in alerts])
    return Batch(rule.alerts, lines)


def _closed(key: str | None, line: bytes, end: datetime | None, now: datetime) -> Result:
    row = json.decode(line)
    return Result(key or "", row if end is None else {**row, "window_end": end.isoformat()}, now)
