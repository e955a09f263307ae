"""API keys and the audit log over HTTP, for administrators; only where callers are asked for keys.

Where they are not, anybody on the machine could make himself a key for servers that do ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct

from penstock.core.errors import InvalidOption
from penstock.server.auth.api_keys import DEFAULT_GRACE, ApiKey, Keys
from penstock.server.auth.audit import Entry, Written
from penstock.server.auth.authenticate import Guard
from penstock.server.auth.authorize import address_of
from penstock.server.auth.identity import EVERY_QUEUE
from penstock.server.auth.key_format import KeyText
from penstock.server.http.endpoint import Call, Endpoint, Role
from penstock.server.http.errors import Problem

_ADMIN = frozenset({Role.ADMIN})
_TAG = "Keys"


@dataclass(frozen=True, slots=True)
class NewKey(ApiKey):
    """A key with its secret, which is not shown again."""

    key: str


class KeyList(Struct, frozen=True):
    """All keys, the revoked too, as they were made."""

    keys: list[ApiKey]


class KeyBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A key that is to be made."""

    name: str
    roles: list[Role]
    queues: Sequence[str] = EVERY_QUEUE
    expires_at: datetime | None = None


class RotateBody(Struct, frozen=True, forbid_unknown_fields=True):
    """How long the secret that the key has is still good."""

    grace_seconds: Annotated[float, Meta(ge=0, le=366 * 86_400)] = DEFAULT_GRACE.total_seconds()


class AuditQuery(Struct, frozen=True):
    """How many lines, and of whom."""

    limit: Annotated[int, Meta(ge=1, le=10_000)] = 50
    who: str | None = None


class AuditLines(Struct, frozen=True):
    """Lines of the audit log, the latest first."""

    entries: list[Written]


async def list_keys(call: Call) -> KeyList:
    """All keys, without their secrets."""
    _guard(call)
    return KeyList(await _keys(call).all())


async def create(call: Call) -> NewKey:
    """Make a key."""
    guard = await _guard_now(call)
    asked: KeyBody = call.body
    if asked.expires_at is not None and asked.expires_at.tzinfo is None:
        raise InvalidOption("expires_at has no time zone; add one, such as a Z at the end", option="expires_at")
    key, text = await _keys(call).create(asked.name, asked.roles, asked.queues, expires_at=asked.expires_at)
    await _note(call, guard, "key create", key)
    return _new(key, text)


async def rotate(call: Call) -> NewKey:
    """Give a key a new secret."""
    guard = await _guard_now(call)
    asked: RotateBody = call.body
    key, text = await _keys(call).rotate(call.path["key"], timedelta(seconds=asked.grace_seconds))
    await _note(call, guard, "key rotate", key)
    return _new(key, text)


async def revoke(call: Call) -> None:
    """End a key."""
    guard = await _guard_now(call)
    await _note(call, guard, "key revoke", await _keys(call).revoke(call.path["key"]))


async def audit(call: Call) -> AuditLines:
    """What was done with an administrator's rights, to keys, and what was tried in vain."""
    asked: AuditQuery = call.query
    return AuditLines(await _guard(call).audit.read(asked.limit, asked.who))


def _guard(call: Call) -> Guard:
    if call.services.guard is None:
        detail = (
            "this server asks nobody for a key, so it makes none: use `penstock key`, or start it with --require-access"
        )
        raise Problem("forbidden", detail)
    return call.services.guard


async def _guard_now(call: Call) -> Guard:
    """For what changes keys: a caller who was revoked a moment ago could outlive that by a key that he makes."""
    guard = _guard(call)
    await guard.look_again(call.caller)
    if call.readmit is not None:
        await call.readmit()
    return guard


def _keys(call: Call) -> Keys:
    return Keys(call.services.log.database)


def _new(key: ApiKey, text: KeyText) -> NewKey:
    return NewKey(**asdict(key), key=str(text))


async def _note(call: Call, guard: Guard, action: str, key: ApiKey) -> None:
    """Write down which key it was: the address that was asked for does not say, or only its id."""
    entry = Entry(call.caller, action, f"{key.id} {key.name}", address_of(call.request), request_id=call.request_id)
    await guard.audit.write_done(entry)


ENDPOINTS = (
    Endpoint("GET", "/v1/keys", list_keys, "All keys, without their secrets", _TAG, _ADMIN, answer=KeyList),
    Endpoint(
        "POST",
        "/v1/keys",
        create,
        "Make a key: the answer is the one time to see it",
        _TAG,
        _ADMIN,
        body=KeyBody,
        answer=NewKey,
        status=201,
        problems=("invalid-name", "invalid-option"),
    ),
    Endpoint(
        "POST",
        "/v1/keys/{key}/rotate",
        rotate,
        "Give a key a new secret",
        _TAG,
        _ADMIN,
        body=RotateBody,
        body_required=False,
        answer=NewKey,
        problems=("not-found",),
    ),
    Endpoint("DELETE", "/v1/keys/{key}", revoke, "End a key", _TAG, _ADMIN, problems=("not-found",)),
    Endpoint(
        "GET",
        "/v1/audit",
        audit,
        "What administrators did, what was done to keys, and what was tried in vain",
        _TAG,
        _ADMIN,
        query=AuditQuery,
        answer=AuditLines,
    ),
)
