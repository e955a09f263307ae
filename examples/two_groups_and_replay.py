"""Two groups read the same events independently; then one of them seeks back.

python examples/two_groups_and_replay.py
"""

import asyncio
from datetime import UTC, datetime

from penstock import Penstock

QUEUE = "example-payments"


async def total(q: Penstock, group: str) -> int:
    """Read the events that the group has not read, and return their sum."""
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
        print(f"billing has read {morning} cents; analytics has read nothing")

        noon = datetime.now(UTC)
        await q.queue(QUEUE).push([{"data": {"cents": 200 + n}, "key": f"customer-{n % 5}"} for n in range(50)])
        afternoon = await total(q, "billing")
        everything = await total(q, "analytics")
        print(f"billing has read {afternoon} cents more, and analytics all {everything} cents")

        # Reading does not remove events. A group is a position in the log and can be moved.
        await q.queue(QUEUE).group("analytics").seek(noon)
        again = await total(q, "analytics")
        print(f"analytics sought back to noon and has read {again} cents again")
        lag = await q.queue(QUEUE).group("billing").lag()

        await q.queue(QUEUE).delete()

    first, second = (sum(base + n for n in range(50)) for base in (100, 200))
    sums = (morning, afternoon, everything, again, lag)
    if sums != (first, second, first + second, second, 0):
        raise SystemExit(f"the sums are wrong: {sums}")
    print("The sums are right, and the seek did not affect billing.")


asyncio.run(main())
