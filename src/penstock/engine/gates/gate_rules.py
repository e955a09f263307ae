"""Check and store the definition of a query's gates when a driver starts."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.errors import InvalidRequest
from penstock.db.statements import Statements
from penstock.engine.cycle.commit_steps import lock_query
from penstock.engine.cycle.cycle_result import CommitTarget
from penstock.engine.gates.limit_overrides import default_limit
from penstock.log.log import Log
from penstock.stream.definition import Definition
from penstock.stream.gates import ConcurrencyGate, Gate, format_amount


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


_sql = Statements("penstock.engine.gates", "gate_rules.sql")

#: A paused partition is parked until it is resumed: its time is in the year 9000.
PAUSED_UNTIL_US = 221_845_392_000_000_000


async def store_gate_rules(log: Log, target: CommitTarget, gates: Sequence[Gate]) -> None:
    """Store the gates, and resume the parked partitions that this driver has to look at."""
    for gate in gates:
        if isinstance(gate, ConcurrencyGate):
            await log.consumer_groups.subscribe(await log.catalog.get(target.sink or ""), gate.group)
    async with log.database.connection() as conn, conn.transaction():
        await lock_query(conn, target)
        has_changed = False
        for number, gate in enumerate(gates, 1):
            limit = default_limit(gate)
            rule = {
                "query": target.query_id,
                "gate": number,
                "kind": limit.kind,
                "amount": format_amount(limit.amount),
                "rate": format_amount(limit.rate) if limit.rate else None,
                "window": limit.window_us or None,
                "group": gate.group if isinstance(gate, ConcurrencyGate) else None,
                "shared": gate.shared,
            }
            has_changed |= await (await conn.execute(_sql["store_rule"], rule)).fetchone() is not None
        await conn.execute(_sql["delete_rules"], {"query": target.query_id, "gates": len(gates)})
        if has_changed:
            await conn.execute(_sql["settle_gates"], {"name": target.name})
        # The previous driver may have reserved a shared gate for a partition that is paused by now. Only that driver
        # knew of the reservation, so all partitions except paused ones resume.
        has_shared = any(gate.shared for gate in gates)
        until_us = PAUSED_UNTIL_US - 1_000_000 if has_shared else None
        for source in target.groups:
            params = {"query": target.query_id, "group": source.group_id, "until": until_us}
            await conn.execute(_sql["resume_all"], params)
