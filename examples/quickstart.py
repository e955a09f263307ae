"""Push, pop, acknowledge.

    python examples/quickstart.py

Without PENSTOCK_DATABASE_URL it runs on a PostgreSQL that comes with Penstock and is started for it.
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

        said = []
        reader = greetings.group("printer").batch(10).wait(True).timeout_millis(1000)
        while events := await reader.pop():
            for event in events:
                print(f"{event.key} says {event.data['say']}")
                said.append((event.key, event.data["say"]))
            # Without this, the events would be delivered again when the lease ends.
            await q.ack(events)

        await greetings.delete()

    # Events are in order within a key. The order of keys is not defined.
    by_lane = {key: [what for who, what in said if who == key] for key, _ in said}
    if by_lane != {"ada": ["hello", "goodbye"], "grace": ["hello"]}:
        raise SystemExit(f"something was lost, doubled or out of order: {said}")
    print("All of it was read, in order.")


asyncio.run(main())
