"""What became of a push, told to the metrics and held against what its producer may push."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.log.write.result import PushResult
    from penstock.server.http.endpoint import Call


def producer_of(call: Call) -> str:
    """Who pushes: the caller, or where access is off its address."""
    return call.caller or (call.request.client.host if call.request.client else "")


def count_push(call: Call, queue: str, result: PushResult) -> None:
    """Count the events of a push; those of one that was answered before have all been there."""
    events = result.accepted + result.duplicates + result.shed + len(result.rejected)
    call.services.producers.take(producer_of(call), events)
    if result.replayed:
        call.services.metrics.pushed(queue, accepted=0, duplicates=events)
        return
    call.services.metrics.pushed(
        queue,
        accepted=result.accepted,
        duplicates=result.duplicates,
        rejected=len(result.rejected),
        dropped=result.shed,
    )
