"""API keys in the database."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from psycopg.rows import class_row

from penstock.core.errors import InvalidOption, NotFound
from penstock.core.names import check_name
from penstock.db.pool import Connection, Database
from penstock.db.retry import run_with_retry
from penstock.db.statements import Statements
from penstock.server.auth.identity import ALL_QUEUES, Identity, Role
from penstock.server.auth.key_format import PlaintextKey, generate_key

_sql = Statements("penstock.server.auth", "api_keys.sql")
_RowT = TypeVar("_RowT")

#: How long a statement is retried after a lost connection. The caller waits for it.
_RETRY_SECONDS = 3.0
#: How long the previous secret stays valid after a rotation, by default.
DEFAULT_GRACE = timedelta(hours=24)
_MAX_GRACE = timedelta(days=366)
_MAX_PATTERNS = 100


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key without its secret."""

    id: str
    name: str
    roles: Sequence[str]
    queues: Sequence[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    rotated_at: datetime | None
    #: When the secret before the last rotation becomes invalid.
    previous_until: datetime | None
    last_used_at: datetime | None


class StoredKey(NamedTuple):
    """The identity of a key and the hashes of its valid secrets: none if the key is revoked or expired."""

    identity: Identity
    hashes: tuple[bytes, ...]

    def matches(self, key: PlaintextKey) -> bool:
        # All comparisons run, so that the response time does not tell which hash is stored.
        given = key.hash
        return any([hmac.compare_digest(given, stored) for stored in self.hashes])


class _KeyRow(NamedTuple):
    id: str
    roles: list[str]
    queues: list[str]
    hash: bytes | None
    previous_hash: bytes | None


class _ActiveRow(NamedTuple):
    has_active: bool


class ApiKeyStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self,
        name: str,
        roles: Sequence[Role],
        queues: Sequence[str] = ALL_QUEUES,
        *,
        expires_at: datetime | None = None,
    ) -> tuple[ApiKey, PlaintextKey]:
        """Create a key. Its secret is not stored: the plaintext key cannot be read again."""
        check_name(name, "key")
        if not roles:
            raise InvalidOption("a key needs at least one role", option="roles")
        for pattern in queues:
            check_name(pattern, "queue pattern")
        if not 1 <= len(queues) <= _MAX_PATTERNS:
            raise InvalidOption(f"a key needs 1 to {_MAX_PATTERNS} queue patterns", option="queues")
        key = generate_key()
        values = {
            "id": key.id,
            "name": name,
            "roles": sorted({role.value for role in roles}),
            "queues": list(dict.fromkeys(queues)),
            "hash": key.hash,
            "expires_at": expires_at,
        }
        (created,) = await self._fetch(ApiKey, "create", values)
        return created, key

    async def list_all(self) -> list[ApiKey]:
        """Return all keys, revoked ones too, in order of creation."""
        return await self._fetch(ApiKey, "list", {})

    async def revoke(self, key_id: str) -> ApiKey:
        """Revoke a key; revoking it again changes nothing."""
        return _require(await self._fetch(ApiKey, "revoke", {"id": key_id}), key_id)

    async def rotate(self, key_id: str, grace: timedelta = DEFAULT_GRACE) -> tuple[ApiKey, PlaintextKey]:
        """Give a key a new secret. The current secret stays valid for ``grace``; older ones become invalid."""
        if not timedelta() <= grace <= _MAX_GRACE:
            raise InvalidOption(f"the grace period must be from 0 to {_MAX_GRACE.days} days", option="grace")
        key = generate_key(key_id)
        values = {"id": key_id, "hash": key.hash, "grace": grace.total_seconds()}
        return _require(await self._fetch(ApiKey, "rotate", values), key_id), key

    async def find(self, key_id: str) -> StoredKey | None:
        rows = await self._fetch(_KeyRow, "find", {"id": key_id})
        if not rows:
            return None
        (row,) = rows
        identity = Identity(row.id, frozenset(map(Role, row.roles)), tuple(row.queues))
        return StoredKey(identity, tuple(hash for hash in (row.hash, row.previous_hash) if hash is not None))

    async def record_use(self, key_id: str) -> None:
        statement = _sql["used"].encode()
        await run_with_retry(self._database.pool, _RETRY_SECONDS, lambda conn: conn.execute(statement, {"id": key_id}))

    async def has_active(self) -> bool:
        """Return whether there is a key that is neither revoked nor expired."""
        (row,) = await self._fetch(_ActiveRow, "has_active", {})
        return row.has_active

    async def _fetch(self, kind: type[_RowT], name: str, values: dict[str, Any]) -> list[_RowT]:
        async def execute(conn: Connection) -> list[_RowT]:
            cursor = conn.cursor(row_factory=class_row(kind))
            return await (await cursor.execute(_sql[name].encode(), values)).fetchall()

        return await run_with_retry(self._database.pool, _RETRY_SECONDS, execute)


def _require(keys: list[ApiKey], key_id: str) -> ApiKey:
    if not keys:
        raise NotFound(f"there is no active key {key_id!r}: `penstock key list` lists all keys")
    return keys[0]
