"""Store, list and delete the rules of a database. ``penstock.stream.rules`` defines and evaluates them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from psycopg import AsyncConnection
from psycopg.rows import scalar_row

from penstock.core.errors import InvalidOption, NotFound, QueueFull
from penstock.core.names import check_key
from penstock.core.option_checks import check_number
from penstock.core.suggestions import closest_names
from penstock.db.scalar import fetch_scalar
from penstock.db.statements import Statements
from penstock.engine.alerts.alert_events import AlertEvent, alert_batch, alert_event
from penstock.log.log import Log
from penstock.stream.rule_evaluation import KeyState, clear_alert
from penstock.stream.rules import Rule

_logger = logging.getLogger("penstock.engine")
_sql = Statements("penstock.engine.alerts", "rule_store.sql")

#: How many results of a queue are read to know their fields.
_RECENT_RESULTS = 100
_MAX_SILENCE_SECONDS = 366 * 86_400


@dataclass(frozen=True, slots=True)
class RuleInfo:
    """A stored rule, and for how many keys it fires."""

    rule: Rule
    firing: int
    #: Until when it raises no new alerts: for all keys, and for single keys.
    silenced_until: datetime | None = None
    silenced_keys: Mapping[str, datetime] = field(default_factory=dict)


class _RuleRow(NamedTuple):
    definition: Any
    firing: int
    #: The ends of silences by key, in ISO format; "" for all keys.
    silences: Mapping[str, str] | None


class FiringAlert(NamedTuple):
    """A rule that fires for a key."""

    rule: str
    key: str
    since: datetime


class RuleStore:
    def __init__(self, log: Log) -> None:
        self._log = log

    async def save(self, rule: Rule, *, strict: bool = True) -> None:
        """Store a rule, and create its alert queue if needed. A changed rule starts without state.

        With ``strict``, a field that no recent result of the queue has is refused.
        """
        if strict:
            await self.check(rule)
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
        return [_to_info(_RuleRow._make(row)) for row in rows]

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

    async def silence(self, name: str, seconds: float, *, key: str | None = None) -> bool:
        """Let a rule raise no new alerts for a time, for one key or for all; 0 ends that. False without such a rule."""
        check_number("seconds", seconds, 0, _MAX_SILENCE_SECONDS)
        params = {"name": name, "key": "" if key is None else check_key(key), "seconds": seconds}
        async with self._log.database.connection() as conn, conn.transaction():
            if await self._load(conn, "lock", name) is None:
                return False
            await conn.execute(_sql["silence" if seconds else "end_silence"], params)
        return True

    async def find_query(self, rule: Rule) -> str | None:
        """Return the query whose cycles evaluate a rule; None if only ``penstock rule run`` does."""
        if rule.condition.kind == "absent":
            return None
        async with self._log.database.connection() as conn:
            query: str | None = await fetch_scalar(conn, _sql["query"], {"queue": rule.queue})
        return query

    async def fields(self, queue: str) -> list[str]:
        """Return the fields of the recent results of a queue, dotted where they are nested."""
        names: dict[str, None] = {}
        for event in await self._log.browse(queue, limit=_RECENT_RESULTS):
            names.update(dict.fromkeys(field_paths(event.data)))
        return list(names)

    async def firing(self) -> list[FiringAlert]:
        """Return the alerts that are firing now, oldest first."""
        async with self._log.database.connection() as conn:
            rows = await (await conn.execute(_sql["firing"])).fetchall()
        return [FiringAlert._make(row) for row in rows]

    async def check(self, rule: Rule) -> None:
        """Raise InvalidOption if the results of the queue do not have the field of a rule."""
        if await self._log.catalog.find(rule.queue) is None:
            return
        names = await self.fields(rule.queue)
        if rule.live is not None:
            # Open windows exist before the queue has a result.
            async with self._log.database.connection() as conn, conn.cursor(row_factory=scalar_row) as cursor:
                columns = await (await cursor.execute(_sql["live_columns"], {"query": rule.live})).fetchall()
            if not columns or rule.value.split(".")[0] in columns:
                return
            names = names or columns
        check_field(rule, names)

    async def _load(self, conn: AsyncConnection[Any], statement: str, name: str) -> Rule | None:
        definition = await fetch_scalar(conn, _sql[statement], {"name": name})
        return None if definition is None else msgspec.convert(definition, Rule)

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


def check_field(rule: Rule, names: Sequence[str]) -> None:
    """Raise InvalidOption if results with these fields do not have the field of a rule."""
    # An absence has no field.
    if not names or rule.value in names or rule.condition.kind == "absent":
        return
    nearest = closest_names(rule.value, names, cutoff=0.4)
    hint = f"did you mean {' or '.join(map(repr, nearest))}?" if nearest else f"they have {', '.join(names[:20])}"
    raise InvalidOption(
        f"value: no recent result in queue {rule.queue!r} has the field {rule.value!r}; {hint}", option="value"
    )


def field_paths(data: Any, prefix: str = "") -> Iterator[str]:
    """Yield the names of the fields that hold values; a result that is no object is the field ``value``."""
    if not isinstance(data, Mapping):
        yield prefix.removesuffix(".") or "value"
        return
    for name, value in data.items():
        yield from field_paths(value, f"{prefix}{name}.")


def _to_info(row: _RuleRow) -> RuleInfo:
    silences = {key: datetime.fromisoformat(until) for key, until in (row.silences or {}).items()}
    everything = silences.pop("", None)
    return RuleInfo(msgspec.convert(row.definition, Rule), row.firing, everything, silences)
