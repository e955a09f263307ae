"""Which queues gates can stand between: those whose partitions are lanes, one for each key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.errors import InvalidRequest
from penstock.stream.gates import Concurrency

if TYPE_CHECKING:
    from penstock.log.log import Log
    from penstock.stream.definition import Definition


async def check_queues(log: Log, stream: Definition) -> None:
    """Refuse queues that the gates of a stream cannot work with, and say how to do it. A sink may be yet to be made."""
    if not stream.gates:
        return
    for name in stream.sources:
        queue = await log.catalog.refresh(name)
        if queue.partitioning != "key":
            raise InvalidRequest(
                f"a gate has one budget for each lane, and queue {name!r} is partitioned by hash, where many keys "
                f"share a partition: create a queue by 'key', let a stream in front fill it, "
                f"Stream.from_({name!r}).to('{name}.by-key'), and gate that queue"
            )
    sink = await log.catalog.find(stream.sink or "")
    counts = any(isinstance(gate, Concurrency) for gate in stream.gates)
    if counts and sink is not None and sink.partitioning != "key":
        raise InvalidRequest(
            f"a concurrency gate counts what is in flight by key, and queue {sink.name!r} is partitioned "
            "by hash: let the stream write to a queue that was created by 'key'"
        )
