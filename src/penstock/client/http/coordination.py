"""Entries, locks and timers of a server."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec

from penstock.client.http.retrying_http import RetryingHttpClient
from penstock.log.coordination.kv import KvOperation, KvResult
from penstock.log.coordination.locks import LockHolder, Permit
from penstock.log.coordination.timers import TimerOperation, TimerResult
from penstock.protocol import coordination


class HttpCoordination:
    _http: RetryingHttpClient

    async def apply_kv(self, operations: Sequence[KvOperation]) -> list[KvResult]:
        # A repeated increment would count twice, and a repeated conditional change would not find its version.
        once = any(each.is_write and (each.op == "increment" or each.expect is not None) for each in operations)
        body = coordination.KvRequest([*operations])
        return (await self._http.request("POST", "kv", coordination.KvResponse, body=body, once=once)).results

    async def apply_timers(self, operations: Sequence[TimerOperation]) -> list[TimerResult]:
        body = coordination.TimerRequest(with_event_ids(operations))
        key = str(uuid.uuid4())
        return (await self._http.request("POST", "timers", coordination.TimerResponse, body=body, key=key)).results

    async def acquire_lock(self, name: str, owner: str, seconds: float, limit: int = 1) -> Permit | None:
        body = coordination.AcquireRequest(name, owner, seconds, limit)
        return (await self._http.request("POST", "locks/acquire", coordination.PermitResponse, body=body)).permit

    async def renew_lock(
        self, name: str, token: int, seconds: float, *, slot: int = 0, owner: str | None = None
    ) -> Permit | None:
        body = coordination.RenewRequest(name, token, seconds, slot, owner)
        return (await self._http.request("POST", "locks/renew", coordination.PermitResponse, body=body)).permit

    async def release_lock(self, name: str, token: int, *, slot: int = 0) -> bool:
        body = coordination.LockReleaseRequest(name, token, slot)
        response = await self._http.request("POST", "locks/release", coordination.LockReleaseResponse, body=body)
        return response.released

    async def lock_holders(self, name: str) -> list[LockHolder]:
        body = coordination.HoldersRequest(name)
        return await self._http.request("POST", "locks/holders", list[LockHolder], body=body)


def with_event_ids(operations: Sequence[TimerOperation]) -> list[TimerOperation]:
    """Give each event an id, so that every attempt of a request schedules the same event."""
    return [
        msgspec.structs.replace(each, event_id=str(uuid.uuid4()))
        if each.op == "schedule" and each.event_id is None
        else each
        for each in operations
    ]
