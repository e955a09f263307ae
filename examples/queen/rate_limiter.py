"""A rate limit for calls to an external API, with a client of Queen.

Calls wait in a queue with a key for each tenant. A gate releases them in order at the rate of the tenant's token
bucket. The client is an unmodified ``queen-mq``. Start a server and run

    penstock serve &
    pip install queen-mq==0.15.0
    python examples/queen/rate_limiter.py
"""

from __future__ import annotations

import asyncio
import os

from queen import Queen, Stream, token_bucket_gate

URL = os.environ.get("PENSTOCK_URL", "http://localhost:6632")
CALLS = 30


async def main() -> None:
    async with Queen(url=URL) as q:
        # Denied messages are delivered again when the lease ends, without using up a retry.
        await q.queue("api.calls").config({"lease_time": 1}).create()
        await q.queue("api.allowed").create()
        await q.queue("api.calls").partition("tenant-a").push([{"data": {"call": n}} for n in range(CALLS)])

        limiter = await (
            Stream.from_(q.queue("api.calls"))
            .gate(token_bucket_gate(capacity=10, refill_per_sec=20))
            .to(q.queue("api.allowed"))
            .run(query_id="api-limiter", url=URL, batch_size=10, reset=True)
        )

        done: list[int] = []
        while len(done) < CALLS:
            calls = await q.queue("api.allowed").group("caller").batch(10).wait(True).timeout_millis(2000).pop()
            done += [call["data"]["call"] for call in calls]
            if calls:
                await q.ack(calls, True, {"group": "caller"})
        await limiter.stop()
        print("calls:", done)


asyncio.run(main())
