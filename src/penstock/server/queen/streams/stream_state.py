"""The state of client-computed streams: the endpoint that reads it, and its changes in the transaction of a cycle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, field
from psycopg.rows import class_row

from penstock.core.clock import EPOCH, MAX_MICROS
from penstock.core.errors import TransactionRefused
from penstock.core.names import check_text
from penstock.db.statements import Statements
from penstock.server.auth.identity import Role
from penstock.server.http.errors import Problem
from penstock.server.queen.delivery.event_lookup import PartitionRef
from penstock.server.queen.endpoint import ListBody, NullableList, queen_routes
from penstock.server.queen.identifiers import IdKind, encode_id
from penstock.server.queen.streams.query_partition import find_activity, find_query_partition
from penstock.server.queen.streams.token_bucket import BucketRelease, parse_bucket
from penstock.server.routing.call import ApiCall

if TYPE_CHECKING:
    from psycopg import AsyncConnection

_sql = Statements("penstock.server.queen.streams", "stream_state.sql")
routes = queen_routes("not-found", "conflict", "invalid-name", "invalid-event")

#: Separates the parts of a state key: operator, window and user key.
_SEPARATOR = "\x1f"
#: Starts the keys of the client's own bookkeeping.
_RESERVED = "__"
#: A worker without a lease may not have read changes that are younger than this.
_UNREAD_SECONDS = 0.5

_MAX_EPOCH_MS = MAX_MICROS // 1000


class StateSelection(ListBody):
    """Selects rows of state by keys, key prefix and end of window; no keys select all."""

    query_id: str
    partition_id: str
    keys: NullableList[str] = field(default_factory=list)
    key_prefix: str | None = None
    ripe_at_or_before: float | None = None


class StateRow(msgspec.Struct):
    key: str
    value: Raw
    updated_at: datetime


class StateRows(msgspec.Struct):
    rows: list[StateRow]
    success: bool = True


class StateOperation(msgspec.Struct):
    """A change of state; ``type`` is ``upsert`` or ``delete``."""

    type: str
    key: str
    value: Raw = field(default_factory=lambda: Raw(b"null"))


class _WindowBounds(msgspec.Struct, rename="camel"):
    window_start: float | None = None
    window_end: float | None = None


@dataclass(frozen=True, slots=True)
class _StoredState:
    state_key: str
    value: str
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class VisibleState:
    """The columns of a row that users see. ``key`` is None for the client's own bookkeeping."""

    key: str | None
    window_start: datetime | None = None
    window_end: datetime | None = None


@routes.post("/streams/v1/state/get", "Read the state of a stream", Role.CONSUME, Role.READ, checks_queues=True)
async def get_state(call: ApiCall, body: StateSelection) -> StateRows:
    """Read the state of a query in a partition.

    A client asks with ``ripe_at_or_before`` for windows that it can close because the partition is idle. While a worker
    holds the partition, or it has unread messages, none is returned: those messages may belong to such a window. A row
    that is too young for a cycle without a lease is left out, too.
    """
    query, partition = await find_query_partition(call, body.query_id, body.partition_id)
    call.require_access_silently(partition.queue)
    for text in (*body.keys, body.key_prefix or ""):
        check_text(text, "a key")
    ripe = body.ripe_at_or_before
    params = {
        "query": query.id,
        "partition": partition.partition_id,
        "keys": body.keys,
        "prefix": body.key_prefix,
        "ripe": None if ripe is None else repr(ripe),
        "seconds": _UNREAD_SECONDS,
    }
    async with call.log.database.connection() as conn:
        if ripe is not None and await find_activity(conn, call.log, partition, query.group_name) is not None:
            return StateRows([])
        cursor = conn.cursor(row_factory=class_row(_StoredState))
        rows = await (await cursor.execute(_sql["read"], params)).fetchall()
    return StateRows([StateRow(row.state_key, Raw(row.value.encode()), row.updated_at) for row in rows])


def parse_state(partition: PartitionRef, state_key: str, value: bytes) -> VisibleState:
    """Extract the user key and the window of a row. A state key is operator, window and user key, or the last alone."""
    if state_key.startswith(_RESERVED):
        return VisibleState(None)
    key = state_key.split(_SEPARATOR)[-1]
    # A stream without keys uses the id of the partition as its key; users know the partition by its name.
    if key == encode_id(IdKind.PARTITION, partition.partition_id):
        key = partition.partition
    try:
        window = msgspec.json.decode(value, type=_WindowBounds)
    except msgspec.MsgspecError:
        return VisibleState(key)
    return VisibleState(key, _from_epoch_ms(window.window_start), _from_epoch_ms(window.window_end))


def _from_epoch_ms(ms: float | None) -> datetime | None:
    return None if ms is None or not 0 <= ms <= _MAX_EPOCH_MS else EPOCH + timedelta(milliseconds=ms)


class StateChanges:
    """The validated state changes of one cycle."""

    def __init__(self, query_id: int, partition: PartitionRef, operations: Sequence[StateOperation]) -> None:
        self._partition = partition
        self._params = {"query": query_id, "partition": partition.partition_id}
        first: dict[str, StateOperation] = {}
        last: dict[str, StateOperation] = {}
        for operation in operations:
            if operation.type not in ("upsert", "delete"):
                raise Problem(
                    "invalid-request", f"a state op must be an upsert or a delete, not {operation.type[:50]!r}"
                )
            check_text(operation.key, "the key of a state op")
            first.setdefault(operation.key, operation)
            last[operation.key] = operation
        self._upserts = [operation for operation in last.values() if operation.type == "upsert"]
        self._deletes = [operation.key for operation in last.values() if operation.type == "delete"]
        # A window is closed once, so a cycle that closes it must find it.
        self.buckets = {
            operation.key: bucket
            for operation in self._upserts
            if _SEPARATOR not in operation.key and (bucket := parse_bucket(bytes(operation.value))) is not None
        }
        self._must_exist = {key for key, change in first.items() if change.type == "delete" and _SEPARATOR in key}
        self.count = len(operations)
        self.has_windows = any(_SEPARATOR in key for key in last)
        self.closed_windows = sum(_SEPARATOR in key for key in self._deletes)

    async def apply(
        self, conn: AsyncConnection[Any], releases: Mapping[str, BucketRelease], *, under_lease: bool
    ) -> None:
        """Write the changes in the connection's transaction; raise TransactionRefused if the state has changed."""
        if not under_lease:
            keys = [operation.key for operation in self._upserts] + self._deletes
            params = {**self._params, "keys": keys, "seconds": _UNREAD_SECONDS}
            if await (await conn.execute(_sql["find_recent"], params)).fetchall():
                raise TransactionRefused("another worker has just changed this state; read it again")
        if self._deletes:
            rows = await (await conn.execute(_sql["delete"], {**self._params, "keys": self._deletes})).fetchall()
            if not self._must_exist & set(self._deletes) <= {key for (key,) in rows}:
                raise TransactionRefused("another worker has closed one of these windows already; read the state again")
        if self._upserts:
            await self._upsert(conn, releases)

    async def _upsert(self, conn: AsyncConnection[Any], releases: Mapping[str, BucketRelease]) -> None:
        visible = [parse_state(self._partition, upsert.key, bytes(upsert.value)) for upsert in self._upserts]
        buckets = [releases.get(upsert.key) for upsert in self._upserts]
        columns = {
            "state_keys": [operation.key for operation in self._upserts],
            "values": [bytes(operation.value).decode() for operation in self._upserts],
            "keys": [state.key for state in visible],
            "starts": [state.window_start for state in visible],
            "ends": [state.window_end for state in visible],
            "capacities": [None if each is None else each.capacity for each in buckets],
            "rates": [None if each is None else each.rate for each in buckets],
            "min_rates": [None if each is None else each.min_rate for each in buckets],
            "costs": [None if each is None else each.cost for each in buckets],
        }
        await conn.execute(_sql["upsert"], {**self._params, **columns})
