"""An event that fails is retried, then becomes a dead letter with the error, and is redriven after the bug is fixed.

python examples/dead_letters.py
"""

import asyncio
from collections.abc import Callable
from typing import Any

from penstock import Penstock

QUEUE = "example-invoices"


def careless(data: dict[str, Any]) -> int:
    """Parse an amount. Raises ValueError if it is empty."""
    return int(data["amount"])


def careful(data: dict[str, Any]) -> int:
    """Parse an amount. An empty one is 0."""
    return int(data["amount"] or 0)


async def process(q: Penstock, read: Callable[[dict[str, Any]], int]) -> list[int]:
    """Process all events and return the amounts in their order."""
    amounts: list[int] = []
    invoices = q.queue(QUEUE).group("accounting").wait(True).timeout_millis(500)
    while events := await invoices.pop():
        (event,) = events
        try:
            amounts.append(read(event.data))
        except ValueError as error:
            # The event is retried up to retry_limit times. Later events of its key wait, other keys continue.
            await q.ack(event, "failed", error=error)
        else:
            await q.ack(event)
    return amounts


async def main() -> None:
    async with Penstock() as q:
        await q.queue(QUEUE).delete()
        await q.queue(QUEUE).config(retry_limit=2, retry_delay_ms=50).create()
        await q.queue(QUEUE).push([{"data": {"amount": amount}, "key": "acme"} for amount in ("12", "", "30")])

        amounts = await process(q, careless)
        dead = await q.queue(QUEUE).dlq("accounting").list()
        for letter in dead:
            print(f"dead letter {letter.id}: {letter.data} failed {letter.attempts} times: {letter.error}")

        print("The bug is fixed. The dead letter is redriven to the group that failed on it.")
        outcome = await q.queue(QUEUE).dlq("accounting").redrive()
        redriven = await process(q, careful)
        left = await q.queue(QUEUE).dlq().count()

        await q.queue(QUEUE).delete()

    result = (amounts, [letter.attempts for letter in dead], outcome.replayed, outcome.failed, redriven, left)
    if result != ([12, 30], [3], 1, 0, [0], 0):
        raise SystemExit(f"unexpected result: {result}")
    print("No dead letters are left.")


asyncio.run(main())
