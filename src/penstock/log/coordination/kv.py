"""Entries by namespace and key, with versions and expiry, alone or in a transaction of the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
import psycopg
from msgspec import Raw, field
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from penstock.core import json
from penstock.core.clock import Clock
from penstock.core.errors import InvalidName, InvalidOption, InvalidRequest, PreconditionFailed, short_repr
from penstock.core.names import check_key, check_name, check_text
from penstock.db.retry import in_transaction
from penstock.db.statements import Statements
from penstock.log.database_errors import translate_errors

_sql = Statements("penstock.log.coordination", "kv.sql")

NULL = Raw(b"null")
MAX_OPERATIONS = 1000
MAX_VALUE_BYTES = 1 << 20
#: The size of the entries that one call returns. A read that would return more is truncated.
MAX_READ_BYTES = 8 << 20
#: The size of an entry in a response, beside its key and value.
_ENTRY_BYTES = 100
MAX_PAGE = 1000
#: Ten years.
MAX_SECONDS = 10 * 366 * 86_400
_MAX_VERSION = (1 << 63) - 1

KvKind: TypeAlias = Literal["get", "get_many", "get_prefix", "put", "delete", "increment", "check"]
_WRITES = ("put", "delete", "increment")


class KvOperation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operation on the entries of a namespace.

    Attributes:
        seconds: The time to live of a ``put`` or ``increment``; None: the entry does not expire.
        expect: The version that the entry must have; 0: there must be none.
        required: If the operation is not applied, the whole batch or transaction is rolled back.
    """

    op: KvKind
    namespace: str
    key: str = ""
    value: Raw = field(default_factory=lambda: NULL)
    seconds: float | None = None
    expect: int | None = None
    delta: int | float = 1
    minimum: int | float | None = None
    maximum: int | float | None = None
    required: bool = False
    keys: list[str] = []
    prefix: str = ""
    after: str = ""
    limit: int = MAX_PAGE
    keys_only: bool = False

    @property
    def is_write(self) -> bool:
        return self.op in _WRITES


class KvEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stored entry. ``value`` is JSON text, and null if only keys were requested."""

    key: str
    value: Raw
    version: int
    expires_at: datetime | None = None
    updated_at: datetime | None = None


class KvResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of an operation.

    Attributes:
        applied: Whether a change or a check was applied; for ``get`` whether there is an entry.
        reason: Why not: exists, version, absent, limit or type.
        entry: The entry after the operation; None if there is none.
        entries: The entries that ``get_many`` and ``get_prefix`` have found.
        missing: The keys of ``get_many`` that have no entry.
        truncated: Whether there are more entries than were returned.
    """

    applied: bool = True
    reason: str | None = None
    entry: KvEntry | None = None
    entries: list[KvEntry] = []
    missing: list[str] = []
    truncated: bool = False


class _ChangeRow(NamedTuple):
    applied: bool
    reason: str | None
    value: str | None
    version: int
    expires_at: datetime | None
    updated_at: datetime | None


class _EntryRow(NamedTuple):
    key: str
    value: str | None
    version: int
    expires_at: datetime | None
    updated_at: datetime


@translate_errors
@dataclass(slots=True, eq=False)
class KeyValueStore:
    pool: AsyncConnectionPool[Any]
    clock: Clock

    async def apply(self, operations: Sequence[KvOperation]) -> list[KvResult]:
        """Execute operations in order, in one transaction.

        Raise PreconditionFailed, and change nothing, if a required operation is not applied.
        """
        check_operations(operations)
        return await in_transaction(self.pool, lambda conn: self.apply_on(conn, operations))

    async def apply_on(self, conn: AsyncConnection[Any], operations: Sequence[KvOperation]) -> list[KvResult]:
        """Execute checked operations in the transaction of a connection."""
        writes = [operation for operation in operations if operation.is_write]
        if len(writes) > 1:
            names = [operation.namespace for operation in writes]
            await conn.execute(_sql["lock"], {"namespaces": names, "keys": [operation.key for operation in writes]})
        results: list[KvResult] = []
        budget = MAX_READ_BYTES
        for index, operation in enumerate(operations):
            try:
                result = await self._execute(conn, operation, budget)
            except psycopg.DataError as error:
                raise InvalidRequest(
                    f"the {operation.op} of key {operation.key!r} is not possible: {error.diag.message_primary}"
                ) from error
            # The value of a put that was applied is a part of the request.
            if operation.op != "put" or not result.applied:
                if budget < 0:
                    raise InvalidRequest(
                        f"the results of one call may have {MAX_READ_BYTES >> 20} MiB, which those before operation "
                        f"{index} have reached: use several calls"
                    )
                budget -= _size(result)
            if operation.required and not result.applied:
                raise PreconditionFailed(
                    f"the {operation.op} of key {operation.key!r} in namespace {operation.namespace!r} was not applied "
                    f"({result.reason}), so all was rolled back",
                    index,
                    result,
                )
            results.append(result)
        return results

    async def _execute(self, conn: AsyncConnection[Any], operation: KvOperation, budget: int) -> KvResult:
        params: dict[str, Any] = {"namespace": operation.namespace, "key": operation.key, "skew": self.clock.skew}
        match operation.op:
            case "get" | "get_many":
                keys = [operation.key] if operation.op == "get" else operation.keys
                entries = await _read(conn, "get_many", {**params, "keys": keys, "max_bytes": budget})
                if operation.op == "get":
                    return KvResult(bool(entries), None, entries[0] if entries else None)
                truncated = sum(_entry_size(entry) for entry in entries) > budget
                found = {entry.key for entry in entries}
                missing = [] if truncated else [key for key in operation.keys if key not in found]
                return KvResult(entries=entries, missing=missing, truncated=truncated)
            case "get_prefix":
                limit = min(max(operation.limit, 1), MAX_PAGE)
                page = {
                    "prefix": operation.prefix,
                    "after": operation.after,
                    "keys_only": operation.keys_only,
                    "limit": limit + 1,
                    "max_bytes": budget,
                }
                entries = await _read(conn, "get_prefix", {**params, **page})
                truncated = len(entries) > limit or sum(_entry_size(entry) for entry in entries) > budget
                return KvResult(entries=entries[:limit], truncated=truncated)
        params |= {
            "value": bytes(operation.value).decode(),
            "seconds": operation.seconds,
            "expect": operation.expect,
            "delta": str(operation.delta),
            "minimum": None if operation.minimum is None else str(operation.minimum),
            "maximum": None if operation.maximum is None else str(operation.maximum),
        }
        row = await (await conn.execute(_sql[operation.op], params)).fetchone()
        change = _ChangeRow._make(row or ())
        entry = None
        if change.value is not None:
            value = Raw(change.value.encode())
            entry = KvEntry(operation.key, value, change.version, change.expires_at, change.updated_at)
        return KvResult(change.applied, change.reason, entry)


async def _read(conn: AsyncConnection[Any], statement: str, params: dict[str, Any]) -> list[KvEntry]:
    rows = await (await conn.execute(_sql[statement], params)).fetchall()
    entries = []
    for row in map(_EntryRow._make, rows):
        value = NULL if row.value is None else Raw(row.value.encode())
        entries.append(KvEntry(row.key, value, row.version, row.expires_at, row.updated_at))
    return entries


def _entry_size(entry: KvEntry) -> int:
    return len(bytes(entry.value))


def _size(result: KvResult) -> int:
    entries = (*result.entries, result.entry)
    return sum(_ENTRY_BYTES + len(entry.key) + _entry_size(entry) for entry in entries if entry is not None)


def check_operations(operations: Sequence[KvOperation], *, in_transaction: bool = False) -> None:
    """Raise InvalidRequest if an operation is invalid, whatever is stored."""
    if len(operations) > MAX_OPERATIONS:
        raise InvalidRequest(f"one call may have up to {MAX_OPERATIONS} operations; this one has {len(operations)}")
    for operation in operations:
        _check_operation(operation)
        if in_transaction and operation.op == "get_prefix":
            raise InvalidRequest("get_prefix is not possible in a transaction: read the prefix before, or use get_many")


def _check_operation(operation: KvOperation) -> None:
    check_namespace(operation.namespace)
    if operation.op == "get_prefix":
        if not check_text(operation.prefix, "the prefix"):
            raise InvalidRequest("get_prefix needs a prefix that is not empty")
        check_text(operation.after, "after")
        return
    if operation.op == "get_many" and not 1 <= len(operation.keys) <= MAX_PAGE:
        raise InvalidRequest(f"get_many needs 1 to {MAX_PAGE} keys, not {len(operation.keys)}")
    for key in operation.keys if operation.op == "get_many" else [operation.key]:
        check_key(key)
    if operation.expect is not None and not 0 <= operation.expect <= _MAX_VERSION:
        raise InvalidRequest(f"expect must be a version, or 0 for a key that must not exist, not {operation.expect}")
    if operation.op == "check" and operation.expect is None:
        raise InvalidRequest("check needs expect: a version, or 0 for a key that must not exist")
    if operation.seconds is not None:
        check_seconds(operation.seconds)
    if not all(map(isfinite, (operation.delta, operation.minimum or 0, operation.maximum or 0))):
        raise InvalidRequest("delta, minimum and maximum must be finite numbers")
    if operation.op == "put":
        _check_value(operation)


def check_namespace(namespace: str) -> str:
    check_name(namespace, "namespace")
    if any(character.isspace() for character in namespace):
        raise InvalidName(f"the name of a namespace must not contain spaces: {namespace!r} does")
    return namespace


def check_seconds(seconds: float) -> float:
    """Return a valid time to live or raise InvalidOption."""
    if not 0 < seconds <= MAX_SECONDS:
        detail = f"the time to live must be more than 0 and up to {MAX_SECONDS:,} seconds, not {short_repr(seconds)}"
        raise InvalidOption(detail, option="ttl_seconds")
    return seconds


def _check_value(operation: KvOperation) -> None:
    value = bytes(operation.value)
    if len(value) > MAX_VALUE_BYTES:
        raise InvalidRequest(
            f"the value of key {operation.key!r} has {len(value):,} bytes; up to {MAX_VALUE_BYTES:,} are possible"
        )
    try:
        json.validate(value)
    except json.JSONProblem as problem:
        raise InvalidRequest(f"the value of key {operation.key!r} is not valid: {problem}") from None
    # PostgreSQL returns 1e9 as 1000000000.
    if len(value) + json.sum_exponents(value) > MAX_VALUE_BYTES:
        raise InvalidRequest(
            f"the value of key {operation.key!r} has more than {MAX_VALUE_BYTES:,} bytes if its numbers are written "
            "without exponents"
        )
