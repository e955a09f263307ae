"""The state of the clients' own streams: what a key of theirs says, and writing it in a cycle's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, field

from penstock.core.errors import TransactionRefused
from penstock.core.names import check_text
from penstock.core.timestamps import EPOCH, LAST
from penstock.db.statements import Statements
from penstock.log.read.ack_by_id import Lane
from penstock.server.http.errors import Problem
from penstock.server.queen.identifiers import Kind, pack

if TYPE_CHECKING:
    from psycopg import AsyncConnection

_sql = Statements("penstock.server.queen", "streams.sql")

#: Between the parts of a key: what made it, its window, and the key that people know.
SEPARATOR = "\x1f"
#: Keys that begin like this are the client's own bookkeeping.
_RESERVED = "__"
#: A worker that reads state and then writes it without a lease has not seen what was written since; it takes no longer.
_UNSEEN_SECONDS = 0.5

_FURTHEST_MS = LAST // 1000


class StateOp(msgspec.Struct):
    """A change of state: ``upsert`` or ``delete``."""

    type: str
    key: str
    value: Raw = field(default_factory=lambda: Raw(b"null"))


class _Window(msgspec.Struct, rename="camel"):
    window_start: float | None = None
    window_end: float | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """What people see of a row: its key, None if it is not for them, and its window."""

    key: str | None
    start: datetime | None = None
    end: datetime | None = None


def shown(lane: Lane, state_key: str, value: bytes) -> Shown:
    """What a row is, as the clients write its key: operator, window and key, or the key alone."""
    if state_key.startswith(_RESERVED):
        return Shown(None)
    key = state_key.split(SEPARATOR)[-1]
    # A stream without keys of its own has the partition's, which has a name.
    if key == pack(Kind.PARTITION, lane.partition_id):
        key = lane.partition
    try:
        window = msgspec.json.decode(value, type=_Window)
    except msgspec.MsgspecError:
        return Shown(key)
    return Shown(key, _moment(window.window_start), _moment(window.window_end))


def _moment(ms: float | None) -> datetime | None:
    return None if ms is None or not 0 <= ms <= _FURTHEST_MS else EPOCH + timedelta(milliseconds=ms)


class StateChange:
    """The changes of one cycle, checked."""

    def __init__(self, query_id: int, lane: Lane, ops: Sequence[StateOp]) -> None:
        self._lane = lane
        self._place = {"query": query_id, "partition": lane.partition_id}
        last: dict[str, StateOp] = {}
        firsts: dict[str, StateOp] = {}
        for op in ops:
            if op.type not in ("upsert", "delete"):
                raise Problem("invalid-request", f"a state op is an upsert or a delete, not {op.type[:50]!r}")
            check_text(op.key, "the key of a state op")
            last[op.key] = op
            firsts.setdefault(op.key, op)
        self._upserts = [op for op in last.values() if op.type == "upsert"]
        self._deletes = [op.key for op in last.values() if op.type == "delete"]
        # A window is closed once: who closes it knows it is there.
        self._must_exist = {key for key, op in firsts.items() if op.type == "delete" and SEPARATOR in key}
        self.count = len(ops)

    async def apply(self, conn: AsyncConnection[Any], *, under_lease: bool) -> None:
        """Write, in the transaction of the cycle; refused if it rests on what is no longer so."""
        if not under_lease:
            keys = {"keys": [op.key for op in self._upserts] + self._deletes, "seconds": _UNSEEN_SECONDS}
            if await (await conn.execute(_sql["fresh"], {**self._place, **keys})).fetchall():
                raise TransactionRefused("another worker has just changed this state; read it again")
        if self._deletes:
            rows = await (await conn.execute(_sql["delete"], {**self._place, "keys": self._deletes})).fetchall()
            if not self._must_exist & set(self._deletes) <= {key for (key,) in rows}:
                raise TransactionRefused("another worker has closed one of these windows already; read the state again")
        if self._upserts:
            found = [shown(self._lane, op.key, bytes(op.value)) for op in self._upserts]
            rows_of = {
                "keys": [op.key for op in self._upserts],
                "values": [bytes(op.value).decode() for op in self._upserts],
                "shown": [each.key for each in found],
                "starts": [each.start for each in found],
                "ends": [each.end for each in found],
            }
            await conn.execute(_sql["upsert"], {**self._place, **rows_of})
