"""Request and response types of entries, locks and timers."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from penstock.log.coordination.kv import KvOperation, KvResult
from penstock.log.coordination.locks import MAX_PERMITS, Permit
from penstock.log.coordination.timers import TimerOperation, TimerResult

_Token = Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
_Slot = Annotated[int, Meta(ge=0, lt=MAX_PERMITS)]


class KvRequest(Struct, frozen=True, forbid_unknown_fields=True):
    operations: list[KvOperation]


class KvResponse(Struct, frozen=True):
    results: list[KvResult]


class TimerRequest(Struct, frozen=True, forbid_unknown_fields=True):
    operations: list[TimerOperation]


class TimerResponse(Struct, frozen=True):
    results: list[TimerResult]


class AcquireRequest(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    owner: str
    seconds: float
    limit: Annotated[int, Meta(ge=1, le=MAX_PERMITS)] = 1


class RenewRequest(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    token: _Token
    seconds: float
    slot: _Slot = 0
    owner: str | None = None


class LockReleaseRequest(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    token: _Token
    slot: _Slot = 0


class HoldersRequest(Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class PermitResponse(Struct, frozen=True):
    """A permit, or null if others hold the lock."""

    permit: Permit | None


class LockReleaseResponse(Struct, frozen=True):
    released: bool
