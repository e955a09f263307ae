"""Check that the queues of a gated stream are partitioned by key."""

from __future__ import annotations

from penstock.core.errors import InvalidRequest
from penstock.log.log import Log
from penstock.stream.definition import Definition
from penstock.stream.gates import ConcurrencyGate


async def check_gate_queues(log: Log, stream: Definition) -> None:
    """Raise InvalidRequest if the gates of a stream cannot work with its queues. The sink need not exist yet."""
    if not stream.gates:
        return
    for name in stream.sources:
        queue = await log.catalog.refresh(name)
        if queue.partitioning != "key":
            raise InvalidRequest(
                f"a gate has one budget per key, but queue {name!r} is partitioned by hash, so keys share partitions. "
                f"Create a queue partitioned by 'key', fill it with Stream.from_({name!r}).to('{name}.by-key'), and "
                "gate that queue"
            )
    sink = await log.catalog.find(stream.sink or "")
    has_concurrency_gate = any(isinstance(gate, ConcurrencyGate) for gate in stream.gates)
    if has_concurrency_gate and sink is not None and sink.partitioning != "key":
        raise InvalidRequest(
            f"a concurrency gate counts events in flight per key, but queue {sink.name!r} is partitioned by hash. "
            "Let the stream write to a queue partitioned by 'key'"
        )
