"""Runs streams of a queen-mq client. Arguments: the version of the client and the URLs of the servers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from typing import Any

from queen import Queen, Stream, sliding_window_gate, token_bucket_gate

VERSION, *URLS = sys.argv[1:]
NAME = f"streams{VERSION}"
URL = URLS[0]
WINDOW = 60


async def drain(q: Queen, queue: str, group: str, count: int) -> list[dict[str, Any]]:
    """Read this many messages from all partitions of a queue."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        source = q.queue(queue).group(group).batch(100).partitions(10).wait(True).timeout_millis(2000)
        batch = await source.pop()
        found += batch
        if batch:
            await q.ack(batch, True, {"group": group})
    return found


async def gate(q: Queen) -> None:
    """A token bucket passes three times its capacity in order."""
    requests, approved = f"{NAME}.gate.in", f"{NAME}.gate.out"
    await q.queue(requests).config({"lease_time": 1, "retry_limit": 0}).create()
    await q.queue(requests).partition("tenant-A").push([{"data": {"seq": i}} for i in range(30)])
    stream = await (
        Stream.from_(q.queue(requests))
        .gate(token_bucket_gate(capacity=10, refill_per_sec=50))
        .to(q.queue(approved))
        .run(query_id=f"{NAME}-gate", url=URL, batch_size=10, reset=True)
    )
    found = await drain(q, approved, "reader", 30)
    await stream.stop()
    assert [message["data"]["seq"] for message in found] == list(range(30))
    assert {message["partition"] for message in found} == {"tenant-A"}
    # A denied message uses no attempt: it does not become a dead letter although retries are off.
    assert (await q.queue(requests).dlq().get())["total"] == 0


async def shared_windows(q: Queen) -> None:
    """Workers on several servers share one query with event-time windows."""
    source, sink = f"{NAME}.sums.in", f"{NAME}.sums.out"
    await q.queue(source).create()
    tenants = [f"t{n}" for n in range(4)]
    expected: Counter[tuple[str, int]] = Counter()

    def build() -> Any:
        return (
            Stream.from_(q.queue(source))
            .window_tumbling(seconds=WINDOW, idle_flush_ms=0, event_time=lambda m: m["data"]["at"] * 1000)
            .aggregate({"count": lambda v: 1, "sum": lambda v: v["n"]})
            .map(lambda value, ctx: {**value, "tenant": ctx["partition"], "window": ctx["windowStart"] // 1000})
            .to(q.queue(sink))
        )

    workers = []
    for number in range(3):
        url = URLS[number % len(URLS)]
        workers.append(await build().run(query_id=f"{NAME}-sums", url=url, batch_size=7, max_partitions=2))
    for first in range(0, 40, 8):
        for tenant in tenants:
            events = [{"at": step * 13, "n": step + len(tenant)} for step in range(first, first + 8)]
            for event in events:
                expected[tenant, event["at"] // WINDOW * WINDOW] += event["n"]
            await q.queue(source).partition(tenant).push([{"data": event} for event in events])
    for tenant in tenants:
        await q.queue(source).partition(tenant).push({"data": {"at": 10_000, "n": 0}})
    found = await drain(q, sink, "reader", len(expected))
    got = {(m["data"]["tenant"], m["data"]["window"]): m["data"]["sum"] for m in found}
    assert got == dict(expected)
    assert len(found) == len(expected), "a window was emitted twice"
    for worker in workers:
        await worker.stop()
    assert sum(worker.metrics()["cyclesTotal"] > 0 for worker in workers) >= 2, "one worker computed everything"
    other = (
        Stream.from_(q.queue(source)).window_tumbling(seconds=WINDOW * 2).reduce(lambda a, v: a, 0).to(q.queue(sink))
    )
    try:
        await other.run(query_id=f"{NAME}-sums", url=URL)
    except Exception as error:
        message = str(error)
    else:
        message = "a changed stream was accepted"
    assert "config_hash mismatch" in message, message


async def idle_windows(q: Queen) -> None:
    """Idle processing-time windows are closed, and each event is counted once."""
    source, sink = f"{NAME}.idle.in", f"{NAME}.idle.out"
    await q.queue(source).create()
    workers = [
        await Stream.from_(q.queue(source))
        .window_tumbling(seconds=1, idle_flush_ms=150)
        .reduce(lambda total, value: total + value["n"], 0)
        .map(lambda value, ctx: {"sum": value, "window": ctx["windowStart"]})
        .to(q.queue(sink))
        .run(query_id=f"{NAME}-idle", url=url, batch_size=5)
        for url in (URLS[0], URLS[-1])
    ]
    pushed = 0
    for step in range(24):
        await q.queue(source).partition(f"p{step % 3}").push({"data": {"n": step}})
        pushed += step
    total = 0
    windows: list[tuple[str, int]] = []
    while total < pushed:
        for message in (
            await q.queue(sink).group("reader").batch(100).partitions(5).wait(True).timeout_millis(2000).pop()
        ):
            total += message["data"]["sum"]
            windows.append((message["partition"], message["data"]["window"]))
            await q.ack(message, True, {"group": "reader"})
    for worker in workers:
        await worker.stop()
    assert total == pushed, (total, pushed)
    assert len(windows) == len(set(windows)), "a window was emitted twice"


async def sessions(q: Queen) -> None:
    source, sink = f"{NAME}.sessions.in", f"{NAME}.sessions.out"
    await q.queue(source).create()
    stream = await (
        Stream.from_(q.queue(source))
        .key_by(lambda m: m["data"]["user"])
        .window_session(gap=30, idle_flush_ms=0, event_time=lambda m: m["data"]["at"] * 1000)
        .reduce(lambda count, _value: count + 1, 0)
        .to(q.queue(sink))
        .run(query_id=f"{NAME}-sessions", url=URL)
    )
    for at, user in ((0, "a"), (5, "b"), (10, "a"), (20, "a"), (100, "b"), (200, "c")):
        await q.queue(source).push({"data": {"at": at, "user": user}})
    found = await drain(q, sink, "reader", 3)
    await stream.stop()
    assert sorted(message["data"]["value"] for message in found) == [1, 1, 3]


async def operators(q: Queen) -> None:
    """A stream without state filters messages and makes two of each."""
    source, sink = f"{NAME}.operators.in", f"{NAME}.operators.out"
    await q.queue(source).partition("p").push([{"data": {"n": n}} for n in range(20)])
    stream = await (
        Stream.from_(q.queue(source))
        .filter(lambda m: m["data"]["n"] % 2 == 1)
        .flat_map(lambda m: [{"n": m["data"]["n"], "copy": copy} for copy in (0, 1)])
        .to(q.queue(sink))
        .run(query_id=f"{NAME}-operators", url=URL, batch_size=7)
    )
    found = await drain(q, sink, "reader", 20)
    await stream.stop()
    assert [m["data"] for m in found] == [{"n": n, "copy": copy} for n in range(1, 20, 2) for copy in (0, 1)]


async def windows(q: Queen) -> None:
    """Sliding windows and windows of calendar minutes, by event time."""
    source = f"{NAME}.windows.in"
    events = [{"at": 600 + step * 7, "n": step} for step in range(40)]
    await q.queue(source).push([{"data": event} for event in [*events, {"at": 10_000, "n": 0}]])
    options = {"idle_flush_ms": 0, "event_time": lambda m: m["data"]["at"] * 1000}
    streams = {
        "sliding": (60, 20, Stream.from_(q.queue(source)).window_sliding(size=60, slide=20, **options)),
        "minutes": (60, 60, Stream.from_(q.queue(source)).window_cron(every="minute", **options)),
    }
    for name, (size, slide, windowed) in streams.items():
        expected: Counter[int] = Counter()
        for event in events:
            last = event["at"] // slide * slide
            for start in range(last - size + slide, last + 1, slide):
                expected[start] += event["n"]
        sink = f"{NAME}.{name}.out"
        stream = await (
            windowed.aggregate({"sum": lambda v: v["n"]})
            .map(lambda value, ctx: {**value, "start": ctx["windowStart"] // 1000})
            .to(q.queue(sink))
            .run(query_id=f"{NAME}-{name}", url=URL, batch_size=9)
        )
        found = await drain(q, sink, "reader", len(expected))
        await stream.stop()
        assert {m["data"]["start"]: m["data"]["sum"] for m in found} == expected, (name, found)
        assert len(found) == len(expected), "a window was emitted twice"


async def recovery(q: Queen) -> None:
    """A second worker continues with the state of the first one."""
    source, sink = f"{NAME}.recovery.in", f"{NAME}.recovery.out"
    for url, events in ((URLS[0], [(1, 5), (2, 6)]), (URLS[-1], [(3, 7), (10_000, 0)])):
        await q.queue(source).push([{"data": {"at": at, "n": n}} for at, n in events])
        worker = await (
            Stream.from_(q.queue(source))
            .window_tumbling(seconds=WINDOW, idle_flush_ms=0, event_time=lambda m: m["data"]["at"] * 1000)
            .reduce(lambda total, value: total + value["n"], 0)
            .to(q.queue(sink))
            .run(query_id=f"{NAME}-recovery", url=url)
        )
        while worker.metrics()["messagesTotal"] < len(events):  # noqa: ASYNC110 - the client has no event for it
            await asyncio.sleep(0.02)
        await worker.stop()
        assert worker.metrics()["errorsTotal"] == 0, worker.metrics()
    (window,) = await drain(q, sink, "reader", 1)
    assert window["data"]["value"] == 18


async def quota(q: Queen) -> None:
    """A sliding window passes exactly its limit for each of two tenants."""
    requests, approved = f"{NAME}.quota.in", f"{NAME}.quota.out"
    await q.queue(requests).config({"lease_time": 1}).create()
    for tenant in ("a", "b"):
        await q.queue(requests).partition(tenant).push([{"data": i} for i in range(100)])
    stream = await (
        Stream.from_(q.queue(requests))
        .gate(sliding_window_gate(limit=100, window_sec=60))
        .to(q.queue(approved))
        .run(query_id=f"{NAME}-quota", url=URL, max_partitions=1)
    )
    found = await drain(q, approved, "reader", 200)
    await stream.stop()
    for tenant in ("a", "b"):
        assert [m["data"]["value"] for m in found if m["partition"] == tenant] == list(range(100))


async def main() -> None:
    async with Queen(url=URL) as q:
        scenarios = (gate, shared_windows, idle_windows, sessions, operators, windows, recovery, quota)
        await asyncio.gather(*(scenario(q) for scenario in scenarios))
    print(json.dumps({"done": True}))


asyncio.run(main())
