"""Authentication: from the credential of a request to an identity."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

import psycopg

from penstock.core.errors import ConfigurationError, DatabaseError
from penstock.db.pool import Database
from penstock.server.auth.api_keys import ApiKeyStore, StoredKey
from penstock.server.auth.audit import AuditEntry, AuditLog
from penstock.server.auth.identity import Identity
from penstock.server.auth.jwt import InvalidCredential, TokenVerifier
from penstock.server.auth.key_format import PREFIX, PlaintextKey, parse_key
from penstock.server.auth.throttle import FailureThrottle
from penstock.server.http.errors import Problem, retry_after
from penstock.server.settings import ServerSettings

logger = logging.getLogger("penstock.server.auth")

#: How long a key is cached: within this time, every process refuses a revoked key.
KEY_CACHE_SECONDS = 5.0
_MAX_CACHED = 10_000
_RECORD_USE_SECONDS = 60.0


class Authenticator:
    """Identifies callers by API key or bearer token."""

    def __init__(self, settings: ServerSettings, database: Database) -> None:
        self._settings = settings
        self._keys = ApiKeyStore(database)
        self._tokens = TokenVerifier(settings)
        self._throttle = FailureThrottle(settings.failed_attempts)
        #: Unknown keys from throttled addresses are looked up one at a time, so that they do not occupy the database.
        self._throttled_lookups = asyncio.Semaphore(1)
        self.audit = AuditLog(database)
        #: By key id: when the entry expires, and the key; None if the database has no such key.
        self._cache: OrderedDict[str, tuple[float, StoredKey | None]] = OrderedDict()
        self._loading: dict[str, asyncio.Task[StoredKey | None]] = {}
        self._last_recorded: OrderedDict[str, float] = OrderedDict()
        self._recording: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Check that at least one credential can succeed, and write the audit log while the server runs."""
        if not self._tokens.has_keys and not await self._keys.has_active():
            raise ConfigurationError(
                "the server requires a key, and there is none yet: create one with "
                "`penstock key create admin --role admin`, or configure the keys that sign bearer tokens with "
                "--jwt-jwks or --jwt-secret-file"
                + ("" if self._settings.is_loopback else "; only a loopback host needs no access control")
            )
        writing = asyncio.create_task(self.audit.run(self._settings.audit_days))
        try:
            yield
        finally:
            writing.cancel()
            with suppress(asyncio.CancelledError):
                await writing

    async def authenticate(
        self, headers: Iterable[tuple[bytes, bytes]], address: str, action: str, request_id: str
    ) -> Identity:
        """Return the identity of the caller, or raise a problem."""
        credential = read_credential(headers)
        if credential is None:
            raise _unauthenticated("Authentication required: send an API key or a token as `Authorization: Bearer ...`")
        key = parse_key(credential)
        if key is not None and (cached := self._cached_identity(key)) is not None:
            return cached
        # A valid credential is accepted from a throttled address, too: it may be that of a proxy with many clients.
        wait = self._throttle.wait_seconds(address)
        try:
            if wait and key is not None and not self._was_valid(key):
                async with self._throttled_lookups:
                    return await self._verify(credential, key)
            return await self._verify(credential, key)
        except InvalidCredential as error:
            if wait:
                detail = "too many failed attempts from this address"
                raise Problem("rate-limited", detail, {"retry_after": round(wait, 1)}, retry_after(wait)) from None
            self._throttle.record_failure(address)
            # The id of an existing key is not secret. A claimed id that does not exist is not recorded.
            who = key.id if key is not None and self._cache.get(key.id, (0, None))[1] is not None else ""
            self.audit.record_failure(AuditEntry(who, "authenticate", action, address, str(error), request_id))
            raise _unauthenticated(f"Authentication failed: {error}", 'Bearer error="invalid_token"') from None

    async def refresh(self, caller: str) -> None:
        """Load a caller's key again, so that a decision after this call uses no older state."""
        # A load that is in progress may have started before the key was revoked, so it is not shared.
        if caller in self._cache:
            await self._load(caller)

    async def find_key(self, key_id: str) -> StoredKey | None:
        """Return the key with this id, at most a few seconds old, for callers that verified its secret before."""
        expires, key = self._cache.get(key_id, (0.0, None))
        return key if time.monotonic() < expires else await self._load_shared(key_id)

    async def _verify(self, credential: str, key: PlaintextKey | None) -> Identity:
        if key is None:
            if credential.startswith(PREFIX):
                raise InvalidCredential("the key is malformed")
            return self._tokens.verify(credential)
        stored = await self.find_key(key.id)
        if stored is None or not stored.matches(key):
            # The key may have been rotated since it was cached.
            stored = await self._load_shared(key.id)
        if stored is None or not stored.matches(key):
            raise InvalidCredential("the key is wrong, revoked or expired")
        self._record_use(key.id)
        return stored.identity

    def _cached_identity(self, key: PlaintextKey) -> Identity | None:
        expires, stored = self._cache.get(key.id, (0.0, None))
        if stored is None or time.monotonic() >= expires or not stored.matches(key):
            return None
        return stored.identity

    def _was_valid(self, key: PlaintextKey) -> bool:
        """Return whether the key was valid when it was last loaded, perhaps long ago."""
        _, stored = self._cache.get(key.id, (0.0, None))
        return stored is not None and stored.matches(key)

    async def _load_shared(self, key_id: str) -> StoredKey | None:
        """Load a key once for all concurrent requests."""
        loading = self._loading.get(key_id)
        if loading is None:
            loading = self._loading[key_id] = asyncio.create_task(self._load(key_id))
            loading.add_done_callback(lambda _: self._loading.pop(key_id, None))
        return await asyncio.shield(loading)

    async def _load(self, key_id: str) -> StoredKey | None:
        begun = time.monotonic()
        stored = await self._keys.find(key_id)
        self._cache[key_id] = (begun + KEY_CACHE_SECONDS, stored)
        self._cache.move_to_end(key_id)
        if len(self._cache) > _MAX_CACHED:
            self._cache.popitem(last=False)
        return stored

    def _record_use(self, key_id: str) -> None:
        now = time.monotonic()
        if now - self._last_recorded.get(key_id, -_RECORD_USE_SECONDS) < _RECORD_USE_SECONDS:
            return
        self._last_recorded[key_id] = now
        self._last_recorded.move_to_end(key_id)
        if len(self._last_recorded) > _MAX_CACHED:
            self._last_recorded.popitem(last=False)
        task = asyncio.create_task(self._keys.record_use(key_id))
        self._recording.add(task)
        task.add_done_callback(self._recording.discard)
        task.add_done_callback(_log_failure)


def read_credential(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the key or token of a request."""
    key = None
    for name, value in headers:
        if name == b"authorization":
            scheme, _, credential = value.decode("latin-1").partition(" ")
            if scheme.lower() == "bearer" and credential.strip():
                return credential.strip()
        elif name == b"x-api-key":
            key = value.decode("latin-1").strip() or None
    return key


def _unauthenticated(detail: str, challenge: str = "Bearer") -> Problem:
    return Problem("unauthenticated", detail, {}, {"WWW-Authenticate": challenge})


def _log_failure(task: asyncio.Task[None]) -> None:
    """Log that the last use of a key was not recorded. The request itself succeeded."""
    if not task.cancelled() and isinstance(error := task.exception(), Exception):
        level = logging.DEBUG if isinstance(error, DatabaseError | psycopg.Error) else logging.ERROR
        logger.log(level, "could not record the use of a key", exc_info=error)
