"""API keys: made, listed, rotated, revoked and found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from penstock.core.errors import InvalidOption, NotFound
from penstock.core.names import check_name
from penstock.db.pool import Connection, Database
from penstock.db.retry import patiently
from penstock.db.statements import Statements
from penstock.server.auth.identity import EVERY_QUEUE, Identity
from penstock.server.auth.key_format import KeyText, new_key, same
from penstock.server.http.endpoint import Role

_sql = Statements("penstock.server.auth", "api_keys.sql")

#: How long a lookup goes on over a lost connection; who asks waits for it.
_PATIENCE_SECONDS = 3.0
#: How long the secret before a rotation is still good, unless told.
DEFAULT_GRACE = timedelta(hours=24)
_LONGEST_GRACE = timedelta(days=366)
_MOST_PATTERNS = 100


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its secret, which only its owner has."""

    id: str
    name: str
    roles: tuple[str, ...]
    queues: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    rotated_at: datetime | None
    #: Until when the secret before the last rotation is still good.
    previous_until: datetime | None
    last_used_at: datetime | None


class Found(NamedTuple):
    """What a key must match, as it was found."""

    identity: Identity
    hashes: tuple[bytes, ...]

    def matches(self, key: KeyText) -> bool:
        """Whether the secret is right."""
        # All of them, whichever fits: a comparison that is left out would be seen in the time it takes.
        given = key.hash
        return any([same(given, each) for each in self.hashes])


class Keys:
    """The keys of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self,
        name: str,
        roles: Sequence[Role],
        queues: Sequence[str] = EVERY_QUEUE,
        *,
        expires_at: datetime | None = None,
    ) -> tuple[ApiKey, KeyText]:
        """Make a key. The text is not stored, so this is the one time to see it."""
        check_name(name, "key")
        if not roles:
            raise InvalidOption("a key without a role could do nothing: give it one", option="roles")
        for pattern in queues:
            check_name(pattern, "queue pattern")
        if not 1 <= len(queues) <= _MOST_PATTERNS:
            raise InvalidOption(f"a key is for 1 to {_MOST_PATTERNS} patterns of queues", option="queues")
        key = new_key()
        values = {
            "id": key.id,
            "name": name,
            "roles": sorted({role.value for role in roles}),
            "queues": list(dict.fromkeys(queues)),
            "hash": key.hash,
            "expires_at": expires_at,
        }
        (row,) = await self._rows("create", values)
        return _key(row), key

    async def all(self) -> list[ApiKey]:
        """All keys, the revoked too, as they were made."""
        return [_key(row) for row in await self._rows("list", {})]

    async def revoke(self, key_id: str) -> ApiKey:
        """End a key; to revoke it again changes nothing."""
        return _key(_one(await self._rows("revoke", {"id": key_id}), key_id))

    async def rotate(self, key_id: str, grace: timedelta = DEFAULT_GRACE) -> tuple[ApiKey, KeyText]:
        """Give a key a new secret; the one it had is good for the time of grace, and the one before that no longer."""
        if not timedelta() <= grace <= _LONGEST_GRACE:
            raise InvalidOption(f"the time of grace is from 0 to {_LONGEST_GRACE.days} days", option="grace")
        key = new_key(key_id)
        rows = await self._rows("rotate", {"id": key_id, "hash": key.hash, "grace": grace.total_seconds()})
        return _key(_one(rows, key_id)), key

    async def find(self, key_id: str) -> Found | None:
        """What the secret of a key must match, if there is such a key; of one that is over, nothing matches."""
        rows = await self._rows("find", {"id": key_id})
        if not rows:
            return None
        found_id, roles, queues, *hashes = rows[0]
        identity = Identity(found_id, frozenset(map(Role, roles)), tuple(queues))
        return Found(identity, tuple(bytes(each) for each in hashes if each is not None))

    async def note_use(self, key_id: str) -> None:
        """Write down that a key was used."""

        async def write(conn: Connection) -> None:
            await conn.execute(_sql["used"].encode(), {"id": key_id})

        await patiently(self._database.pool, _PATIENCE_SECONDS, write)

    async def any_active(self) -> bool:
        """Whether there is a key that is good for something."""
        return bool((await self._rows("any_active", {}))[0][0])

    async def _rows(self, name: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        async def ask(conn: Connection) -> list[tuple[Any, ...]]:
            return await (await conn.execute(_sql[name].encode(), values)).fetchall()

        return await patiently(self._database.pool, _PATIENCE_SECONDS, ask)


def _key(row: tuple[Any, ...]) -> ApiKey:
    key_id, name, roles, queues, *times = row
    return ApiKey(key_id, name, tuple(roles), tuple(queues), *times)


def _one(rows: list[tuple[Any, ...]], key_id: str) -> tuple[Any, ...]:
    if not rows:
        raise NotFound(f"there is no key {key_id!r} that is not revoked: `penstock key list` shows those there are")
    return rows[0]
