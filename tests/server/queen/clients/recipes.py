"""Runs recipes of Queen's users with a queen-mq client: rate limits of every kind, and aggregates that are read as SQL.

Arguments: the version of the client, the URLs of two servers, and that of their database.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import psycopg
from queen import Queen, Stream, sliding_window_gate, token_bucket_gate

VERSION, URL, OTHER_URL, DATABASE_URL = sys.argv[1:]
NAME = f"recipes{VERSION}"
Message = dict[str, Any]
#: The clock of a release and that of its messages are read within one transaction.
SLACK_SECONDS = 1.0


async def drain(q: Queen, queue: str, count: int) -> list[Message]:
    found: list[Message] = []
    while len(found) < count:
        source = q.queue(queue).group("reader").batch(200).partitions(20).wait(True).timeout_millis(2000)
        batch = await source.pop()
        found += batch or []
        if batch:
            await q.ack(batch, True, {"group": "reader"})
    return found


async def limit(
    q: Queen, source: str, sink: str, gate: Callable[..., bool], *, query: str = "", urls: Sequence[str] = (URL,)
) -> list[Any]:
    """Start a worker of a gated stream on each server. Only the first one resets the state."""
    return [
        await Stream.from_(q.queue(source))
        .gate(gate)
        .to(q.queue(sink))
        .run(query_id=query or sink, url=url, batch_size=200, max_partitions=16, reset=index == 0)
        for index, url in enumerate(urls)
    ]


async def create(q: Queen, *queues: str, lease_time: int = 1) -> None:
    for queue in queues:
        await q.queue(queue).config({"lease_time": lease_time, "retry_limit": 1000}).create()


def is_in_order(messages: Sequence[Message], count: int) -> bool:
    return [message["data"]["seq"] for message in messages] == list(range(count))


def largest_burst(messages: Sequence[Message], rate: float, cost: Callable[[Any], float]) -> float:
    """Return the most that was released in any interval beyond what the rate refills in it: the size of the bucket."""
    level = worst = 0.0
    before: datetime | None = None
    for message in messages:
        at = datetime.fromisoformat(message["createdAt"].replace("Z", "+00:00"))
        if before is not None:
            level = max(0.0, level - rate * (at - before).total_seconds())
        level += cost(message["data"])
        worst, before = max(worst, level), at
    return worst


async def requests_per_second(q: Queen) -> None:
    source, sink = f"{NAME}.requests", f"{NAME}.approved"
    await create(q, source, sink)
    await q.queue(source).partition("tenant-A").push([{"data": {"seq": i}} for i in range(60)])
    workers = await limit(q, source, sink, token_bucket_gate(capacity=20, refill_per_sec=20))
    found = await drain(q, sink, 60)
    assert is_in_order(found, 60)
    assert largest_burst(found, 20, lambda _: 1) <= 20 + 20 * SLACK_SECONDS
    for worker in workers:
        await worker.stop()


async def weighted_requests(q: Queen) -> None:
    source, sink = f"{NAME}.weighted", f"{NAME}.weighted.approved"
    await create(q, source, sink)
    items = [{"data": {"seq": i, "weight": i % 5 + 1}} for i in range(100)]
    await q.queue(source).partition("tenant-A").push(items)
    gate = token_bucket_gate(capacity=100, refill_per_sec=50, cost_fn=lambda m: m["weight"])
    workers = await limit(q, source, sink, gate)
    found = await drain(q, sink, 100)
    assert is_in_order(found, 100)
    assert sum(message["data"]["weight"] for message in found) == 300
    assert largest_burst(found, 50, lambda m: m["weight"]) <= 100 + 50 * SLACK_SECONDS
    for worker in workers:
        await worker.stop()


async def two_limits_in_a_row(q: Queen) -> None:
    """The second gate, which counts the parts of a request, is the one that limits."""
    source, middle, sink = (f"{NAME}.cascade.{stage}" for stage in ("src", "mid", "ok"))
    await create(q, source, middle, sink)
    items = [{"data": {"seq": i, "items": [f"{i}-{part}" for part in range(5)]}} for i in range(40)]
    await q.queue(source).partition("tenant-A").push(items)
    parts = token_bucket_gate(capacity=60, refill_per_sec=30, cost_fn=lambda m: len(m["items"]))
    workers = await limit(q, source, middle, token_bucket_gate(capacity=20, refill_per_sec=20))
    workers += await limit(q, middle, sink, parts)
    found = await drain(q, sink, 40)
    assert is_in_order(found, 40)
    assert largest_burst(found, 30, lambda m: len(m["items"])) <= 60 + 30 * SLACK_SECONDS
    for worker in workers:
        await worker.stop()


async def quota_in_a_sliding_window(q: Queen) -> None:
    source, sink = f"{NAME}.quota", f"{NAME}.quota.approved"
    await create(q, source, sink)
    await q.queue(source).partition("tenant-A").push([{"data": {"seq": i}} for i in range(50)])
    workers = await limit(q, source, sink, sliding_window_gate(limit=20, window_sec=5))
    found = await drain(q, sink, 50)
    assert is_in_order(found, 50)
    times = [datetime.fromisoformat(message["createdAt"].replace("Z", "+00:00")) for message in found]
    window = timedelta(seconds=5)
    # The client's two counters are exact to within one limit.
    assert max(sum(start <= at < start + window for at in times) for start in times) <= 40
    for worker in workers:
        await worker.stop()


async def several_runners_on_one_query(q: Queen) -> None:
    source, sink, query = f"{NAME}.ota", f"{NAME}.ota.approved", f"{NAME}-ota-limiter"
    await create(q, source, sink)
    tenants = [f"tenant-{n}" for n in range(5)]
    for tenant in tenants:
        await q.queue(source).partition(tenant).push([{"data": {"seq": i}} for i in range(200)])
    gate = token_bucket_gate(capacity=100, refill_per_sec=50)
    workers = await limit(q, source, sink, gate, query=query, urls=(URL, OTHER_URL, URL, OTHER_URL))
    found = await drain(q, sink, 1000)
    for tenant in tenants:
        released = [message for message in found if message["partition"] == tenant]
        assert is_in_order(released, 200)
        assert largest_burst(released, 50, lambda _: 1) <= 100 + 50 * SLACK_SECONDS
    for worker in workers:
        await worker.stop()
    with psycopg.connect(DATABASE_URL) as connection:
        rows = connection.execute(
            "SELECT (s.value->>'allowedTotal')::int, (s.value->>'consumedTotal')::int "
            "FROM queen_streams.state s JOIN queen_streams.queries q ON q.id = s.query_id WHERE q.name = %s",
            [query],
        ).fetchall()
    assert rows == [(200, 200)] * 5, rows


async def aggregates_as_sql(q: Queen) -> None:
    """Open windows are rows of SQL, and closed ones are messages. Together they are what was pushed."""
    source, sink, query = f"{NAME}.events", f"{NAME}.events.totals", f"{NAME}-per-customer"
    await create(q, source, sink, lease_time=30)
    stream = await (
        Stream.from_(q.queue(source))
        .window_tumbling(seconds=2, idle_flush_ms=500)
        .aggregate({"count": lambda _: 1, "sum": lambda m: m["amount"], "max": lambda m: m["amount"]})
        .to(q.queue(sink))
        .run(query_id=query, url=URL, batch_size=200, max_partitions=8, max_wait_millis=200, reset=True)
    )
    amounts = random.Random(7)
    pushed: list[tuple[str, float]] = []
    open_windows: list[tuple[Any, ...]] = []
    while len(pushed) < 1000 or not open_windows:
        batch = [(f"cust-{amounts.randrange(30)}", round(amounts.random() * 100, 1)) for _ in range(25)]
        await asyncio.gather(
            *(
                q.queue(source).partition(customer).push({"data": {"customerId": customer, "amount": amount}})
                for customer, amount in batch
            )
        )
        pushed += batch
        with psycopg.connect(DATABASE_URL) as connection:
            open_windows += connection.execute(
                "SELECT s.partition_id, s.key, s.value->'acc'->>'count', s.updated_at FROM queen_streams.state s "
                "JOIN queen_streams.queries q ON q.id = s.query_id "
                "WHERE q.name = %s AND s.value ? 'acc' AND s.key <> '__wm__'",
                [query],
            ).fetchall()
    closed: list[dict[str, Any]] = []
    while sum(window["count"] for window in closed) < len(pushed):
        closed += [message["data"] for message in await drain(q, sink, 1)]
    await stream.stop()
    assert sum(window["count"] for window in closed) == len(pushed)
    assert abs(sum(window["sum"] for window in closed) - sum(amount for _, amount in pushed)) < 0.01
    assert max(window["max"] for window in closed) == max(amount for _, amount in pushed)
    with psycopg.connect(DATABASE_URL) as connection:
        rows = connection.execute(
            "SELECT source_queue, sink_queue, length(config_hash) FROM queen_streams.queries WHERE name = %s", [query]
        ).fetchall()
    assert rows == [(source, sink, 64)], rows


async def main() -> None:
    recipes = (
        requests_per_second,
        weighted_requests,
        two_limits_in_a_row,
        quota_in_a_sliding_window,
        several_runners_on_one_query,
        aggregates_as_sql,
    )
    async with Queen(url=URL) as q:
        await asyncio.gather(*(recipe(q) for recipe in recipes))


asyncio.run(main())
