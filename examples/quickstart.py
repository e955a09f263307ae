"""Push, pop, acknowledge.

    python examples/quickstart.py

Without PENSTOCK_DATABASE_URL, it starts the PostgreSQL that comes with Penstock.
"""

import asyncio

from penstock import Penstock


async def main() -> None:
    async with Penstock() as q:
        greetings = q.queue("example-quickstart")
        await greetings.delete()
        await greetings.create()

        # Each key has its own partition. The events are durable when push returns.
        await greetings.partition("ada").push([{"data": {"say": "hello"}}, {"data": {"say": "goodbye"}}])
        await greetings.push({"data": {"say": "hello"}, "key": "grace"})

        received = []
        reader = greetings.group("printer").batch(10).wait(True).timeout_millis(1000)
        while events := await reader.pop():
            for event in events:
                print(f"{event.key} says {event.data['say']}")
                received.append((event.key, event.data["say"]))
            # Without this, the events would be delivered again when the lease ends.
            await q.ack(events)

        await greetings.delete()

    # Events are in order within a key. The order of keys is not defined.
    by_key = {key: [word for k, word in received if k == key] for key, _ in received}
    if by_key != {"ada": ["hello", "goodbye"], "grace": ["hello"]}:
        raise SystemExit(f"an event is missing, repeated or out of order: {received}")
    print("All events were read in order.")


asyncio.run(main())
