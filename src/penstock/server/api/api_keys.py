"""``/v1/keys`` and ``/v1/audit``, for administrators of a server with access control.

Without access control, anybody on the machine could create a key for servers that have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct

from penstock.core.errors import InvalidOption
from penstock.server.auth.api_keys import DEFAULT_GRACE, ApiKey, ApiKeyStore
from penstock.server.auth.audit import AuditEntry, AuditRecord
from penstock.server.auth.authenticate import Authenticator
from penstock.server.auth.authorize import client_address
from penstock.server.auth.identity import ALL_QUEUES, Role
from penstock.server.auth.key_format import PlaintextKey
from penstock.server.http.errors import Problem
from penstock.server.routing.call import ApiCall
from penstock.server.routing.endpoint import EndpointGroup

routes = EndpointGroup("Keys")


@dataclass(frozen=True, slots=True)
class NewKey(ApiKey):
    """A key with its secret, which is not shown again."""

    key: str


class KeyList(Struct, frozen=True):
    """All keys, revoked ones too, in order of creation."""

    keys: list[ApiKey]


class CreateKeyRequest(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    roles: list[Role]
    queues: Sequence[str] = ALL_QUEUES
    expires_at: datetime | None = None


class RotateKeyRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """How long the current secret stays valid."""

    grace_seconds: Annotated[float, Meta(ge=0, le=366 * 86_400)] = DEFAULT_GRACE.total_seconds()


class AuditQuery(Struct, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 50
    who: str | None = None


class AuditEntryList(Struct, frozen=True):
    """Audit entries, the newest first."""

    entries: list[AuditRecord]


@routes.get("/v1/keys", "List keys", Role.ADMIN)
async def list_api_keys(call: ApiCall) -> KeyList:
    """Return all keys, without their secrets."""
    _require_access_control(call)
    return KeyList(await _store(call).list_all())


@routes.post("/v1/keys", "Create a key", Role.ADMIN, status=201, problems=("invalid-name", "invalid-option"))
async def create_api_key(call: ApiCall, body: CreateKeyRequest) -> NewKey:
    """Create a key. The response contains its secret, which cannot be read again."""
    authenticator = await _reauthorize(call)
    if body.expires_at is not None and body.expires_at.tzinfo is None:
        raise InvalidOption("expires_at has no time zone; add one, such as Z at the end", option="expires_at")
    key, plaintext = await _store(call).create(body.name, body.roles, body.queues, expires_at=body.expires_at)
    await _audit(call, authenticator, "key create", key)
    return _to_new_key(key, plaintext)


@routes.post("/v1/keys/{key}/rotate", "Rotate a key", Role.ADMIN, body_required=False, problems=("not-found",))
async def rotate_api_key(call: ApiCall, body: RotateKeyRequest) -> NewKey:
    """Give a key a new secret. The current one stays valid for a grace period."""
    authenticator = await _reauthorize(call)
    key, plaintext = await _store(call).rotate(call.path["key"], timedelta(seconds=body.grace_seconds))
    await _audit(call, authenticator, "key rotate", key)
    return _to_new_key(key, plaintext)


@routes.delete("/v1/keys/{key}", "Revoke a key", Role.ADMIN, problems=("not-found",))
async def revoke_api_key(call: ApiCall) -> None:
    authenticator = await _reauthorize(call)
    await _audit(call, authenticator, "key revoke", await _store(call).revoke(call.path["key"]))


@routes.get("/v1/audit", "List audit entries", Role.ADMIN)
async def list_audit_entries(call: ApiCall, query: AuditQuery) -> AuditEntryList:
    """Return actions of administrators, changes to keys, and refused attempts."""
    return AuditEntryList(await _require_access_control(call).audit.read(query.limit, query.who))


def _require_access_control(call: ApiCall) -> Authenticator:
    if call.services.authenticator is None:
        raise Problem(
            "forbidden",
            "this server has no access control, so it manages no keys: "
            "use `penstock key`, or start it with --require-access",
        )
    return call.services.authenticator


async def _reauthorize(call: ApiCall) -> Authenticator:
    """Authorize the caller again with its current key: a key revoked a moment ago must not create another one."""
    authenticator = _require_access_control(call)
    await authenticator.refresh(call.caller)
    if call.reauthorize is not None:
        await call.reauthorize()
    return authenticator


def _store(call: ApiCall) -> ApiKeyStore:
    return ApiKeyStore(call.log.database)


def _to_new_key(key: ApiKey, plaintext: PlaintextKey) -> NewKey:
    return NewKey(**asdict(key), key=str(plaintext))


async def _audit(call: ApiCall, authenticator: Authenticator, action: str, key: ApiKey) -> None:
    """Write an audit entry with the id and the name of the key; the path has at most its id."""
    address = client_address(call.request)
    entry = AuditEntry(call.caller, action, f"{key.id} {key.name}", address, request_id=call.request_id)
    await authenticator.audit.write_or_log(entry)
