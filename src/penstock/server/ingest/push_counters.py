"""Accounting of pushes and timers: metrics and the rate limit of the producer."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core.errors import IdempotencyConflict, InvalidEvent, PenstockError
from penstock.log.coordination.timers import TimerOperation
from penstock.log.log import Log
from penstock.log.write.push_result import PushResult
from penstock.server.auth.authorize import client_address
from penstock.server.routing.call import ApiCall


def producer_id(call: ApiCall) -> str:
    """Return the identity of the producer: the caller, or its address while access control is off."""
    return call.caller or client_address(call.request)


async def account_failure(
    call: ApiCall, queue: str | None, error: IdempotencyConflict | InvalidEvent
) -> IdempotencyConflict | InvalidEvent:
    """Count a push that failed, given its first queue; return the error to raise."""
    if isinstance(error, IdempotencyConflict):
        # The message of the log contains the stored key, which the caller does not know.
        given = call.request.headers.get("idempotency-key", "")
        return IdempotencyConflict(
            f"the idempotency key {given!r} was used for other events; use a new key for new events"
        )
    # Only for existing queues: a client must not create series by naming many queues.
    if queue is not None and await _exists(call.log, queue):
        call.services.metrics.count_push(queue, accepted=0, rejected=1)
    return error


async def _exists(log: Log, queue: str) -> bool:
    try:
        await log.queue(queue)
    except PenstockError:
        return False
    return True


def charge_timers(call: ApiCall, timers: Iterable[TimerOperation]) -> None:
    """Charge scheduled events to the producer, like a push; raise a problem if its rate limit is exceeded."""
    events = sum(timer.op == "schedule" for timer in timers)
    if events:
        call.services.producer_rates.check(producer_id(call))
        call.services.producer_rates.consume(producer_id(call), events)


def count_push(call: ApiCall, queue: str, result: PushResult) -> None:
    """Count the events of a push. Those of a replayed push are all duplicates."""
    events = result.accepted + result.duplicates + result.shed + len(result.rejected)
    call.services.producer_rates.consume(producer_id(call), events)
    if result.replayed:
        call.services.metrics.count_push(queue, accepted=0, duplicates=events)
        return
    call.services.metrics.count_push(
        queue,
        accepted=result.accepted,
        duplicates=result.duplicates,
        rejected=len(result.rejected),
        dropped=result.shed,
    )
