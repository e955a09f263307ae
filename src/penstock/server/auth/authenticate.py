"""Who asks: from what a request carries to what its caller may do."""

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
from penstock.server.auth.api_keys import Found, Keys
from penstock.server.auth.audit import Audit, Entry
from penstock.server.auth.identity import Identity
from penstock.server.auth.jwt import InvalidToken, Tokens
from penstock.server.auth.key_format import PREFIX, KeyText, parse_key
from penstock.server.auth.throttle import Attempts
from penstock.server.http.errors import Problem, retry_after
from penstock.server.settings import ServerSettings

logger = logging.getLogger("penstock.server.auth")

REVOKED_WITHIN_SECONDS = 5.0
"""For so long a key that was found is taken as it was: a revoked one is refused everywhere after this time."""

_MOST_REMEMBERED = 10_000
_NOTE_USE_SECONDS = 60.0


class Guard:
    """Knows callers by their keys and tokens."""

    def __init__(self, settings: ServerSettings, database: Database) -> None:
        self._settings = settings
        self._keys = Keys(database)
        self._tokens = Tokens(settings)
        self._attempts = Attempts(settings.failed_attempts)
        self.audit = Audit(database)
        self._found: OrderedDict[str, tuple[float, Found | None]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[Found | None]] = {}
        self._used: OrderedDict[str, float] = OrderedDict()
        self._notes: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Check that there is a way in, and keep the audit log while the server runs."""
        if not self._tokens.is_on and not await self._keys.any_active():
            raise ConfigurationError(
                "callers need a key, and there is none yet: make one with `penstock key create admin --role admin`, "
                "or name the keys that sign bearer tokens with --jwt-jwks or --jwt-secret-file"
                + ("" if self._settings.is_loopback else "; without access control only loopback is served")
            )
        writing = asyncio.create_task(self.audit.keep_writing(self._settings.audit_days))
        try:
            yield
        finally:
            writing.cancel()
            with suppress(asyncio.CancelledError):
                await writing

    async def identify(
        self, headers: Iterable[tuple[bytes, bytes]], address: str, action: str, request_id: str
    ) -> Identity:
        """Who asks, or a problem."""
        credential = credential_of(headers)
        if credential is None:
            raise _unknown("Authentication required: send an API key or a token as `Authorization: Bearer ...`")
        key = parse_key(credential)
        if key is not None and (found := self._remembered(key)) is not None:
            # Known as good a moment ago: not held up by what others at this address have tried.
            return found
        if wait := self._attempts.wait_seconds(address):
            detail = "there were too many failed attempts from this address"
            raise Problem("rate-limited", detail, {"retry_after": round(wait, 1)}, retry_after(wait))
        try:
            return await self._verify(credential, key)
        except InvalidToken as error:
            self._attempts.failed(address)
            # Of a key that exists the id, which is no secret; nothing of what is merely claimed.
            who = key.id if key is not None and self._found.get(key.id, (0, None))[1] is not None else ""
            self.audit.note_failure(Entry(who, "authenticate", action, address, str(error), request_id))
            raise _unknown(f"Authentication failed: {error}", 'Bearer error="invalid_token"') from None

    async def look_again(self, caller: str) -> None:
        """Ask the database anew about a caller's key, so that nothing from before now is believed of it."""
        # Not together with who asks already: that may have begun before the key was revoked.
        if caller in self._found:
            await self._ask(caller)

    async def _verify(self, credential: str, key: KeyText | None) -> Identity:
        if key is None:
            if credential.startswith(PREFIX):
                raise InvalidToken("the key is malformed")
            return self._tokens.identify(credential)
        found = await self.find(key.id)
        if found is None or not found.matches(key):
            # It may have been rotated since it was remembered.
            found = await self._ask_once(key.id)
        if found is None or not found.matches(key):
            raise InvalidToken("the key is wrong, revoked or over")
        self._note_use(key.id)
        return found.identity

    def _remembered(self, key: KeyText) -> Identity | None:
        until, found = self._found.get(key.id, (0.0, None))
        if found is None or time.monotonic() >= until or not found.matches(key):
            return None
        return found.identity

    async def find(self, key_id: str) -> Found | None:
        """The key of this id as it was a moment ago, for whoever has seen its secret before; None if there is none."""
        until, found = self._found.get(key_id, (0.0, None))
        return found if time.monotonic() < until else await self._ask_once(key_id)

    async def _ask_once(self, key_id: str) -> Found | None:
        # Asked once, however many requests wait for the answer.
        asking = self._asking.get(key_id)
        if asking is None:
            asking = self._asking[key_id] = asyncio.create_task(self._ask(key_id))
            asking.add_done_callback(lambda _: self._asking.pop(key_id, None))
        return await asyncio.shield(asking)

    async def _ask(self, key_id: str) -> Found | None:
        asked = time.monotonic()
        found = await self._keys.find(key_id)
        self._found[key_id] = (asked + REVOKED_WITHIN_SECONDS, found)
        self._found.move_to_end(key_id)
        if len(self._found) > _MOST_REMEMBERED:
            self._found.popitem(last=False)
        return found

    def _note_use(self, key_id: str) -> None:
        now = time.monotonic()
        if now - self._used.get(key_id, -_NOTE_USE_SECONDS) < _NOTE_USE_SECONDS:
            return
        self._used[key_id] = now
        self._used.move_to_end(key_id)
        if len(self._used) > _MOST_REMEMBERED:
            self._used.popitem(last=False)
        task = asyncio.create_task(self._keys.note_use(key_id))
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)
        task.add_done_callback(_forgive)


def credential_of(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The key or token that a request carries."""
    key = None
    for name, value in headers:
        if name == b"authorization":
            scheme, _, credential = value.decode("latin-1").partition(" ")
            if scheme.lower() == "bearer" and credential.strip():
                return credential.strip()
        elif name == b"x-api-key":
            key = value.decode("latin-1").strip() or None
    return key


def _unknown(detail: str, challenge: str = "Bearer") -> Problem:
    return Problem("unauthenticated", detail, {}, {"WWW-Authenticate": challenge})


def _forgive(task: asyncio.Task[None]) -> None:
    """When a key was last used is nice to know; that it could not be written hurts nobody."""
    if not task.cancelled() and isinstance(error := task.exception(), Exception):
        level = logging.DEBUG if isinstance(error, DatabaseError | psycopg.Error) else logging.ERROR
        logger.log(level, "the use of a key could not be noted", exc_info=error)
