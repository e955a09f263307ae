"""Store the definition of a query's gates when a driver starts."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.db.statements import Statements
from penstock.engine.cycle.models import CommitTarget
from penstock.engine.cycle.query_lock import lock_query
from penstock.engine.gates.limits import default_limit
from penstock.log.log import Log
from penstock.stream.gates import ConcurrencyGate, Gate, format_amount

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
