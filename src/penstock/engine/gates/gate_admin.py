"""List the gates of all queries, and change their limits while the queries run. Needs no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct

from penstock.core.errors import InvalidOption, InvalidRequest, NotFound
from penstock.core.names import check_key, check_name
from penstock.db.pool import Database
from penstock.db.scalar import fetch_scalar
from penstock.db.statements import Statements
from penstock.stream.gates import format_amount, parse_amount
from penstock.stream.windows import parse_seconds

_sql = Statements("penstock.engine.gates", "gate_admin.sql")
_QUEEN_VIEWS = (
    "create_queen_schema",
    "drop_old_queen_views",
    "create_queen_id",
    "create_queen_queries",
    "create_queen_state",
)

#: The kinds of gate that have a limit of each name.
_KINDS = {
    "rate": ("token_bucket",),
    "capacity": ("token_bucket",),
    "limit": ("sliding_window", "concurrency"),
    "window_seconds": ("sliding_window",),
}
_MAX_HOLD_SECONDS = 366 * 86_400
MAX_LISTED_GATES = 100_000


class GateInfo(Struct, frozen=True):
    """The current state of a gate for one key; ``key`` is None for a gate that all keys share."""

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
    """A change of the limits of one key or of all keys. Fields that are not given stay as they are."""

    #: The key; None for all keys that have no limits of their own.
    key: str | None = None
    #: The number of the gate in the query, from 1; required only if several gates have the limit.
    gate: Annotated[int, Meta(ge=1, le=1000)] | None = None
    #: Tokens per second, and the capacity, of a token bucket.
    rate: float | None = None
    capacity: float | None = None
    #: The limit of a sliding window, or of the events in flight.
    limit: float | None = None
    window_seconds: float | None = None
    #: The key's share of a shared limit, relative to the other keys.
    weight: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    paused: bool | None = None
    #: Release nothing for so long and start with an empty bucket then, as for a Retry-After; 0 ends the hold.
    hold_seconds: float | None = None
    #: Remove earlier changes of the key first.
    clear: bool = False


class _GateRule(NamedTuple):
    number: int
    kind: str


class GateAdmin:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(
        self,
        query: str | None = None,
        key: str | None = None,
        *,
        search: str | None = None,
        waiting: bool = False,
        limit: int = MAX_LISTED_GATES,
    ) -> Sequence[GateInfo]:
        """Return gates, those with the largest backlog first.

        Args:
            query: only gates of this query.
            key: only gates of this key, and shared gates.
            search: only gates of keys that contain this text.
            waiting: only gates that hold events back.
            limit: at most so many gates.
        """
        async with self._database.connection() as conn:
            if query is not None:
                await self._rules(conn, query)
            params = {"query": query, "key": key, "search": search, "waiting": waiting, "limit": limit}
            rows = await (await conn.execute(_sql["list"], params)).fetchall()
        return [GateInfo(*row) for row in rows]

    async def change(self, query: str, change: GateChange) -> None:
        """Change limits. They apply to waiting events at once."""
        check_name(query, "query")
        key = "" if change.key is None else check_key(change.key)
        async with self._database.connection() as conn, conn.transaction():
            rules = await self._rules(conn, query)
            target = {"query": query, "key": key}
            if change.clear:
                await conn.execute(_sql["clear"], target)
            for row in _changed_rows(change, rules):
                await conn.execute(_sql["change"], {**target, **row})

    async def sink(self, query: str) -> str:
        """Return the queue that a gated query writes to."""
        async with self._database.connection() as conn:
            sink = await fetch_scalar(conn, _sql["sink"], {"query": query})
        if sink is None:
            raise _not_found(query)
        return str(sink)

    async def create_queen_views(self) -> bool:
        """Create the views that queries written for Queen use; False if they exist."""
        async with self._database.connection() as conn, conn.transaction():
            if await (await conn.execute(_sql["has_queen_views"])).fetchone() is not None:
                return False
            for statement in _QUEEN_VIEWS:
                await conn.execute(_sql[statement], prepare=False)
        return True

    async def _rules(self, conn: Any, query: str) -> Sequence[_GateRule]:
        rows = await (await conn.execute(_sql["rules"], {"query": query})).fetchall()
        if not rows:
            raise _not_found(query)
        return [_GateRule._make(row) for row in rows]


def _not_found(query: str) -> NotFound:
    return NotFound(f"there is no query {query!r} with a gate; `penstock gate list` lists the queries with gates")


def _changed_rows(change: GateChange, rules: Sequence[_GateRule]) -> list[dict[str, Any]]:
    """Return the rows of ``gate_limits`` to write: gate 0 for the partition as a whole, one more per changed gate."""
    rows: dict[int, dict[str, Any]] = {}

    def put(gate: int, name: str, value: Any) -> None:
        empty = dict.fromkeys(("amount", "rate", "window", "weight", "paused", "hold"))
        rows.setdefault(gate, {"gate": gate, **empty})[name] = value

    for option, kinds in _KINDS.items():
        value = getattr(change, option)
        if value is None:
            continue
        gate = _find_gate(option, kinds, change.gate, rules)
        if option == "window_seconds":
            put(gate, "window", parse_seconds(option, value))
        else:
            put(gate, "rate" if option == "rate" else "amount", format_amount(parse_amount(option, value)))
    if change.weight is not None:
        put(0, "weight", change.weight)
    if change.paused is not None:
        put(0, "paused", change.paused)
    if change.hold_seconds is not None:
        if not 0 <= change.hold_seconds <= _MAX_HOLD_SECONDS:
            raise InvalidOption(f"hold_seconds must be from 0 to {_MAX_HOLD_SECONDS}", option="hold_seconds")
        put(0, "hold", change.hold_seconds)
    if not rows and not change.clear:
        raise InvalidRequest(
            "the request changes nothing: give at least one of rate, capacity, limit, window, weight, paused, hold"
        )
    return list(rows.values())


def _find_gate(option: str, kinds: tuple[str, ...], gate: int | None, rules: Sequence[_GateRule]) -> int:
    matching = [rule.number for rule in rules if rule.kind in kinds and gate in (None, rule.number)]
    if len(matching) == 1:
        return matching[0]
    problem = "no gate of the query has it" if not matching else "several gates have it, so give the number of one"
    gates = ", ".join(f"{rule.number} ({rule.kind})" for rule in rules)
    raise InvalidOption(f"{option}: {problem}; the query's gates are {gates}", option=option)
