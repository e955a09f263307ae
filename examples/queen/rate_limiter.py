"""A rate limit in front of an API that others run, with a client that knows nothing of Penstock.

Calls wait in a queue with a lane for each tenant; a gate lets through what the tenant's bucket has tokens for, in
order, and the rest waits. The client is ``queen-mq``, unmodified: it speaks the message plane. Start a server and run

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
        # What the gate denies comes again when the lease ends, and that costs no retry.
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
