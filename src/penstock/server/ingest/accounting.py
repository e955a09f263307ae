"""Accounting of pushes: metrics and the rate limit of the producer."""

from __future__ import annotations

from penstock.log.write.result import PushResult
from penstock.server.auth.authorize import client_address
from penstock.server.routing.call import ApiCall


def producer_id(call: ApiCall) -> str:
    """Return the identity of the producer: the caller, or its address while access control is off."""
    return call.caller or client_address(call.request)


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
