"""Locks and semaphores with fencing tokens. A permit is an entry of the key-value store that expires."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from psycopg_pool import AsyncConnectionPool

from penstock.core.clock import Clock
from penstock.core.errors import InvalidName
from penstock.core.names import check_text
from penstock.core.option_checks import check_integer
from penstock.db.statements import Statements
from penstock.log.coordination.kv import KeyValueStore, KvOperation, check_seconds
from penstock.log.database_errors import translate_errors

_sql = Statements("penstock.log.coordination", "locks.sql")

#: The namespace of the permits. Queen's clients know it, so they share locks with this client.
LOCK_NAMESPACE = "queen-locks"
MAX_PERMITS = 1024
_MAX_NAME_BYTES = 256


class Permit(msgspec.Struct, frozen=True):
    """A permit of a lock: its number and fencing token, until when it lasts, and whether the owner held it before."""

    slot: int
    token: int
    already: bool
    expires_at: datetime


class LockHolder(msgspec.Struct, frozen=True):
    """The holder of a permit."""

    slot: int
    owner: str
    token: int
    since: datetime
    expires_at: datetime
    renewed_at: datetime


def check_lock_name(name: str) -> str:
    """Return a valid name of a lock or raise InvalidName."""
    if "#" in _check_name(name, "lock"):
        raise InvalidName(f"the name of a lock must not contain #: {name!r} does")
    return name


def _check_name(name: str, what: str) -> str:
    size = len(check_text(name, f"the name of a {what}").encode())
    if not 1 <= size <= _MAX_NAME_BYTES:
        raise InvalidName(f"the name of a {what} must have 1 to {_MAX_NAME_BYTES} bytes, not {size}")
    if not name.isprintable():
        raise InvalidName(f"the name of a {what} must be printable: {name!r} is not")
    return name


def permit_key(name: str, slot: int) -> str:
    return f"{name}#{slot}"


def guard(name: str, slot: int, token: int) -> KvOperation:
    """Return the check that a token is the one of the holder; without it, a batch or transaction is rolled back."""
    return KvOperation("check", LOCK_NAMESPACE, permit_key(name, slot), expect=token, required=True)


def access_names(operations: Iterable[KvOperation]) -> set[str]:
    """Return the names that a caller has to have access to: namespaces, and the names of locks."""
    return {
        operation.key.rpartition("#")[0]
        if operation.namespace == LOCK_NAMESPACE and operation.op not in ("get_many", "get_prefix")
        else operation.namespace
        for operation in operations
    }


@translate_errors
@dataclass(slots=True, eq=False)
class Locks:
    pool: AsyncConnectionPool[Any]
    kv: KeyValueStore
    clock: Clock

    async def acquire(self, name: str, owner: str, seconds: float, limit: int = 1) -> Permit | None:
        """Take one of ``limit`` permits for a time. None if all are held. An owner that holds one gets that one."""
        check_integer("limit", limit, 1, MAX_PERMITS)
        params = {"owner": _check_name(owner, "owner"), "seconds": check_seconds(seconds), "limit": limit}
        row = await self._fetch("acquire", name, params)
        return None if row is None else Permit(*row)

    async def renew(
        self, name: str, token: int, seconds: float, *, slot: int = 0, owner: str | None = None
    ) -> Permit | None:
        """Extend a permit and return it with its new token. None if it is lost."""
        owned_by = None if owner is None else _check_name(owner, "owner")
        params = {"token": token, "seconds": check_seconds(seconds), "slot": slot, "owner": owned_by}
        row = await self._fetch("renew", name, params)
        if row is None:
            return None
        renewed_token, expires_at = row
        return Permit(slot, renewed_token, True, expires_at)

    async def release(self, name: str, token: int, *, slot: int = 0) -> bool:
        """Give a permit back. False if it is held under another token, or by nobody."""
        check_lock_name(name)
        operation = KvOperation("delete", LOCK_NAMESPACE, permit_key(name, slot), expect=token)
        return (await self.kv.apply([operation]))[0].applied

    async def holders(self, name: str) -> list[LockHolder]:
        async with self.pool.connection() as conn:
            params = {"name": check_lock_name(name), "skew": self.clock.skew}
            rows = await (await conn.execute(_sql["holders"], params)).fetchall()
        return [LockHolder(*row) for row in rows]

    async def _fetch(self, statement: str, name: str, params: dict[str, Any]) -> Any:
        async with self.pool.connection() as conn:
            filled = {"name": check_lock_name(name), "skew": self.clock.skew, **params}
            return await (await conn.execute(_sql[statement], filled)).fetchone()
