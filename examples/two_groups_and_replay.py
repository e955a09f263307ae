"""Two groups read the same events, each at its own pace; then one of them goes back in time.

python examples/two_groups_and_replay.py
"""

import asyncio
from datetime import UTC, datetime

from penstock import Penstock

QUEUE = "example-payments"


async def total(q: Penstock, group: str) -> int:
    """Read whatever the group has not read yet, and add it up."""
    cents = 0
    reader = q.queue(QUEUE).group(group).batch(100).partitions(10).wait(True).timeout_millis(500)
    while events := await reader.pop():
        cents += sum(event.data["cents"] for event in events)
        await q.ack(events)
    return cents


async def main() -> None:
    async with Penstock() as q:
        await q.queue(QUEUE).delete()
        await q.queue(QUEUE).create()

        await q.queue(QUEUE).push([{"data": {"cents": 100 + n}, "key": f"customer-{n % 5}"} for n in range(50)])
        morning = await total(q, "billing")
        print(f"billing has seen {morning} cents; analytics has not looked yet")

        noon = datetime.now(UTC)
        await q.queue(QUEUE).push([{"data": {"cents": 200 + n}, "key": f"customer-{n % 5}"} for n in range(50)])
        afternoon = await total(q, "billing")
        everything = await total(q, "analytics")
        print(f"billing has seen {afternoon} cents more, and analytics {everything} at once")

        # Events stay where they are when they are read: a group is only a place in the log, and can be moved.
        await q.queue(QUEUE).group("analytics").seek(noon)
        again = await total(q, "analytics")
        print(f"analytics went back to noon and has seen {again} cents again")
        lag = await q.queue(QUEUE).group("billing").lag()

        await q.queue(QUEUE).delete()

    first, second = (sum(base + n for n in range(50)) for base in (100, 200))
    found = (morning, afternoon, everything, again, lag)
    if found != (first, second, first + second, second, 0):
        raise SystemExit(f"the sums are wrong: {found}")
    print("The sums are right, and billing did not notice.")


asyncio.run(main())
