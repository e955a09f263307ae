"""Consume, transform and produce exactly once, even if workers fail.

    python examples/transaction.py

The output of a worker is stored together with the ack of its input, or not at all. A worker whose lease has ended is
refused when another worker has processed its events.
"""

import asyncio
from collections.abc import Sequence

from penstock import Event, Penstock, TransactionRefused

ORDERS, SHIPMENTS = "example-orders", "example-shipments"
COUNT = 30


async def finish(q: Penstock, events: Sequence[Event]) -> None:
    """Push shipments and acknowledge their orders in one transaction."""
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

        # This worker pops orders and stalls, so that its lease of half a second ends.
        taken = await worker.lease_seconds(0.5).pop()
        print(f"A worker took {len(taken)} orders and stalled.")

        other = worker.wait(True).timeout_millis(1500)
        while events := await other.pop():
            await finish(q, events)

        refused = False
        try:
            await finish(q, taken)
        except TransactionRefused as error:
            refused = True
            print(f"It resumed and was refused: {error}")

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
