"""Consume, transform, produce: exactly once, though workers die on the way.

    python examples/transaction.py

What a worker makes of an order is stored together with its ack, or not at all. A worker that was taken for dead, and
comes back when somebody else has done its work, is refused.
"""

import asyncio
from collections.abc import Sequence

from penstock import Event, Penstock, TransactionRefused

ORDERS, SHIPMENTS = "example-orders", "example-shipments"
COUNT = 30


async def finish(q: Penstock, events: Sequence[Event]) -> None:
    """Ship what was ordered, and say that it is done, in one transaction."""
    async with q.transaction() as tx:
        tx.ack(events)
        tx.queue(SHIPMENTS).push([{"data": {"ship": event.data["order"]}, "key": event.key} for event in events])


async def main() -> None:
    async with Penstock() as q:
        for name in (ORDERS, SHIPMENTS):
            await q.queue(name).delete()
            await q.queue(name).create()
        await q.queue(ORDERS).push([{"data": {"order": n}, "key": f"customer-{n % 3}"} for n in range(COUNT)])
        worker = q.queue(ORDERS).group("shipping").batch(4)

        # This one takes orders and is not heard of for a while: its lease, of half a second, ends.
        taken = await worker.lease_seconds(0.5).pop()
        print(f"A worker took {len(taken)} orders and fell asleep.")

        patient = worker.wait(True).timeout_millis(1500)
        while events := await patient.pop():
            await finish(q, events)

        refused = False
        try:
            await finish(q, taken)
        except TransactionRefused as error:
            refused = True
            print(f"It woke up and was refused: {error}")

        shipped = []
        while events := await q.queue(SHIPMENTS).group("check").batch(100).partitions(3).pop():
            shipped += [event.data["ship"] for event in events]
            await q.ack(events)

        for name in (ORDERS, SHIPMENTS):
            await q.queue(name).delete()

    if not refused or sorted(shipped) != list(range(COUNT)):
        raise SystemExit(f"not exactly once (refused: {refused}): {sorted(shipped)}")
    print(f"{COUNT} orders, {len(shipped)} shipments: each exactly once.")


asyncio.run(main())
