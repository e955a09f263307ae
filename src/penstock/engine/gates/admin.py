"""The gates of all queries, for those who look at them and change their limits while they run. Needs no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from penstock.core.errors import InvalidOption, InvalidRequest, NotFound
from penstock.core.names import check_key, check_name
from penstock.db.pool import Database
from penstock.db.statements import Statements
from penstock.stream.gates import amount_text, read_amount
from penstock.stream.windows import micros

_sql = Statements("penstock.engine.gates", "admin.sql")

#: Which kinds of gate have a limit of that name.
_KINDS = {
    "rate": ("token_bucket",),
    "capacity": ("token_bucket",),
    "limit": ("sliding_window", "concurrency"),
    "window_seconds": ("sliding_window",),
}
_LONGEST_HOLD = 366 * 86_400
MOST_GATES = 100_000


class GateInfo(Struct, frozen=True):
    """A gate of a lane, as it is now; a gate that all lanes share has no key."""

    query: str
    key: str | None
    gate: int
    #: token_bucket, sliding_window or concurrency
    kind: str
    tokens: float | None
    used: float | None
    limit: float
    rate: float | None
    window_seconds: float | None
    allowed_total: int
    cost_total: float
    denied_since: datetime | None
    next_at: datetime | None
    backlog: int
    paused: bool
    hold_until: datetime | None
    updated_at: datetime


class GateChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to change for a key, or for all: only what is given does."""

    #: The key; none: all keys that have no limits of their own.
    key: str | None = None
    #: Which gate of the query, from 1; needed only where several could be meant.
    gate: Annotated[int, Meta(ge=1, le=1000)] | None = None
    #: Tokens a second, and the capacity, of a token bucket.
    rate: float | None = None
    capacity: float | None = None
    #: The limit of a sliding window or of what is in flight.
    limit: float | None = None
    window_seconds: float | None = None
    #: How much of a shared limit the lane gets beside the others.
    weight: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    paused: bool | None = None
    #: Let nothing through for so long, and begin with an empty bucket then: a partner's Retry-After. 0 ends that.
    hold_seconds: float | None = None
    #: Forget what was changed for the key before.
    clear: bool = False


class GateBook:
    """Looks at gates and changes their limits."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(
        self,
        query: str | None = None,
        key: str | None = None,
        *,
        search: str | None = None,
        waiting: bool = False,
        limit: int = MOST_GATES,
    ) -> Sequence[GateInfo]:
        """Gates, those that hold back most first; with ``waiting`` only those, with ``search`` of keys that hold it."""
        async with self._database.connection() as conn:
            if query is not None:
                await self._rules(conn, query)
            params = {"query": query, "key": key, "search": search, "waiting": waiting, "limit": limit}
            rows = await (await conn.execute(_sql["list"], params)).fetchall()
        return [GateInfo(*row) for row in rows]

    async def change(self, query: str, change: GateChange) -> None:
        """Change limits; what waits is looked at again at once."""
        check_name(query, "query")
        key = "" if change.key is None else check_key(change.key)
        async with self._database.connection() as conn, conn.transaction():
            rules = await self._rules(conn, query)
            about = {"query": query, "key": key}
            if change.clear:
                await conn.execute(_sql["clear"], about)
            for params in _changes(change, rules):
                await conn.execute(_sql["change"], {**about, **params})

    async def sink(self, query: str) -> str:
        """The queue that a query writes what its gates let through to."""
        async with self._database.connection() as conn:
            row = await (await conn.execute(_sql["sink"], {"query": query})).fetchone()
        if row is None:
            raise _missing(query)
        return str(row[0])

    async def make_compatible(self) -> bool:
        """Make views under the names that another platform's users know; False if they were there."""
        async with self._database.connection() as conn, conn.transaction():
            row = await (await conn.execute(_sql["is_there"])).fetchone()
            if row is not None and row[0]:
                return False
            for statement in _sql["compat"].split(";\n"):
                await conn.execute(statement, prepare=False)
        return True

    async def _rules(self, conn: Any, query: str) -> Sequence[tuple[int, str]]:
        rules: Sequence[tuple[int, str]] = await (await conn.execute(_sql["rules"], {"query": query})).fetchall()
        if not rules:
            raise _missing(query)
        return rules


def _missing(query: str) -> NotFound:
    return NotFound(f"there is no query {query!r} with a gate: `penstock gate list` shows those there are")


def _changes(change: GateChange, rules: Sequence[tuple[int, str]]) -> list[dict[str, Any]]:
    """The rows to change: one for the lane as a whole, one for each gate that is meant."""
    found: dict[int, dict[str, Any]] = {}

    def put(gate: int, name: str, value: Any) -> None:
        empty = dict.fromkeys(("amount", "rate", "window", "weight", "paused", "hold"))
        found.setdefault(gate, {"gate": gate, **empty})[name] = value

    for option, kinds in _KINDS.items():
        value = getattr(change, option)
        if value is None:
            continue
        gate = _meant(option, kinds, change.gate, rules)
        if option == "window_seconds":
            put(gate, "window", micros(option, value))
        else:
            put(gate, "rate" if option == "rate" else "amount", amount_text(read_amount(option, value)))
    if change.weight is not None:
        put(0, "weight", change.weight)
    if change.paused is not None:
        put(0, "paused", change.paused)
    if change.hold_seconds is not None:
        if not 0 <= change.hold_seconds <= _LONGEST_HOLD:
            raise InvalidOption(f"hold_seconds must be from 0 to {_LONGEST_HOLD}", option="hold_seconds")
        put(0, "hold", change.hold_seconds)
    if not found and not change.clear:
        raise InvalidRequest("nothing is to change: say rate, capacity, limit, window, weight, paused or hold")
    return list(found.values())


def _meant(option: str, kinds: tuple[str, ...], gate: int | None, rules: Sequence[tuple[int, str]]) -> int:
    fitting = [number for number, kind in rules if kind in kinds and gate in (None, number)]
    if len(fitting) == 1:
        return fitting[0]
    gates = ", ".join(f"{number} ({kind})" for number, kind in rules)
    what = "none of its gates has one" if not fitting else "several of its gates have one: say which"
    raise InvalidOption(f"{option}: {what}; the query's gates are {gates}", option=option)
