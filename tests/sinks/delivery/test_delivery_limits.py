"""The limits of a gate hold at the receiver of a sink: after outages, restarts and redrives, and when they change."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pytest

from penstock.core.errors import InvalidOption
from penstock.engine.gates.event_costs import COST_HEADER
from penstock.log.dead_letters.dead_letter import DeadLetterFilter
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from penstock.sinks import Backoff, File, Sinks, Webhook
from penstock.stream.gates import NANOS_PER_TOKEN as TOKEN
from tests.conditions import eventually_async
from tests.engine.gates.ideal_limiter import Grant, respects_bucket, respects_window
from tests.log.logs import letters, push
from tests.sinks.http.webhook_receiver import Answer, Receiver, run_receiver

QUICK = Backoff(first=0.01, longest=0.05)
KEYS = ("a", "b", "c")


async def gate(log: Log, queue: str, kind: str, amount: float, rate: float = 0, window: float = 0, **more: Any) -> str:
    """Store the gate of a query that writes to the queue; return the name of the query."""
    query = f"limiter-{queue}"
    async with log.database.connection() as conn:
        row = await conn.execute(
            "INSERT INTO penstock.queries (name, description, fingerprint, history_seconds, sink_queue) "
            "VALUES (%s, '{gate}', 'x', 1, %s) RETURNING id",
            (query, queue),
        )
        ((query_id,),) = await row.fetchall()
        await conn.execute(
            "INSERT INTO penstock.gate_rules (query_id, gate, kind, amount, rate, window_us, shared) "
            "VALUES (%s, 1, %s, %s, nullif(%s, 0), nullif(%s, 0), %s)",
            (query_id, kind, amount, rate, int(window * 1_000_000), more.get("shared", False)),
        )
    return query


@dataclass
class Arrivals:
    """The events that reached a receiver, with their times, also in requests that it refused."""

    times: dict[str, list[Grant]] = field(default_factory=dict)
    is_down: bool = False
    most_keys: int = 0

    def record(self, events: list[dict[str, Any]]) -> Answer:
        now = time.monotonic_ns() // 1000
        self.most_keys = max(self.most_keys, len({event["key"] for event in events}))
        for event in events:
            cost = int(event["headers"].get(COST_HEADER, "1")) * TOKEN
            self.times.setdefault(event["key"], []).append((now, cost))
        return 503 if self.is_down else 200

    def respect_bucket(self, capacity: int, rate: int) -> bool:
        return all(respects_bucket(times, capacity * TOKEN, rate * TOKEN) for times in self.times.values())


def hook(receiver: Receiver, **options: Any) -> Webhook:
    return Webhook(receiver.url, **{"allow": ["127.0.0.0/8"], "backoff": QUICK, "timeout": 2.0, **options})


@asynccontextmanager
async def running(log: Log, queue: str, sink: Webhook, **options: Any) -> AsyncIterator[Sinks]:
    sinks = Sinks(log=log).add(queue, sink, group="hook", **{"backoff": QUICK, "attempts": None, **options})
    task = asyncio.create_task(sinks.run())
    try:
        yield sinks
    finally:
        sinks.stop()
        await task


async def push_each(log: Log, queue: str, count: int) -> None:
    for key in KEYS:
        await push(log, [{"n": n} for n in range(count)], queue=queue, key=key)


def check_order(receiver: Receiver, count: int) -> None:
    taken = receiver.taken()
    for key in KEYS:
        assert [event["data"]["n"] for event in taken if event["key"] == key] == list(range(count))


async def taken(receiver: Receiver, count: int) -> None:
    async def is_taken() -> bool:
        return len(receiver.taken()) >= count

    await eventually_async(is_taken)


@pytest.mark.parametrize("batch", [1, 100])
@pytest.mark.slow
async def test_a_receiver_that_was_away_gets_no_burst(log: Log, queue: str, batch: int) -> None:
    await gate(log, queue, "token_bucket", 5, rate=20)
    await push_each(log, queue, 25)
    arrivals = Arrivals(is_down=True)
    async with run_receiver() as receiver:
        receiver.behave = arrivals.record
        async with running(log, queue, hook(receiver, batch=batch, concurrency=4)):
            await eventually_async(lambda: _is(lambda: len(receiver.requests) > 5))
            arrivals.is_down = False
            await taken(receiver, 75)
        check_order(receiver, 25)
    assert arrivals.respect_bucket(5, 20)
    assert arrivals.most_keys == 1


async def test_a_receiver_that_cannot_be_reached_costs_no_tokens(log: Log, queue: str) -> None:
    """The attempts would use up the limit of a whole hour."""
    await gate(log, queue, "sliding_window", 10, window=3600)
    await push(log, [{"n": n} for n in range(10)], queue=queue, key="a")
    async with run_receiver() as receiver:
        url = receiver.url
    async with running(log, queue, Webhook(url, allow=["127.0.0.1"], backoff=QUICK), batch=10) as sinks:
        await eventually_async(lambda: _is(lambda: sinks.counters[queue, "hook"].busy > 5))
    async with run_receiver() as receiver, running(log, queue, hook(receiver), batch=10):
        await taken(receiver, 10)


@pytest.mark.slow
async def test_the_limit_holds_across_restarts(log: Log, queue: str) -> None:
    await gate(log, queue, "sliding_window", 4, window=1)
    await push_each(log, queue, 12)
    arrivals = Arrivals()
    async with run_receiver() as receiver:
        receiver.behave = arrivals.record
        while len(receiver.taken()) < 36:
            async with running(log, queue, hook(receiver, batch=3, concurrency=3)):
                await taken(receiver, min(len(receiver.taken()) + 5, 36))
        check_order(receiver, 12)
    assert all(respects_window(times, 4 * TOKEN, 1_000_000) for times in arrivals.times.values())


SINK_PROGRAM = """
import asyncio, sys
from penstock.sinks import Sinks, Webhook
async def main():
    async with Sinks(sys.argv[1]) as sinks:
        sink = Webhook(sys.argv[3], allow=["127.0.0.1"], batch=1, concurrency=8)
        await sinks.add(sys.argv[2], sink, group="hook", lease_seconds=1).run()
asyncio.run(main())
"""


@pytest.mark.slow
async def test_the_limit_holds_when_the_sink_is_killed(log: Log, queue: str, sinks_url: str) -> None:
    await gate(log, queue, "token_bucket", 3, rate=6)
    await push_each(log, queue, 20)
    arrivals = Arrivals()
    async with run_receiver() as receiver:
        receiver.behave = arrivals.record
        while len(receiver.taken()) < 60:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", SINK_PROGRAM, sinks_url, queue, receiver.url
            )
            try:
                await taken(receiver, min(len(receiver.taken()) + 20, 60))
            finally:
                process.kill()
                await process.wait()
        check_order(receiver, 20)
    assert arrivals.respect_bucket(3, 6)


@pytest.mark.slow
async def test_redriven_dead_letters_keep_the_limit(log: Log, queue: str) -> None:
    await gate(log, queue, "token_bucket", 5, rate=50)
    await push(log, [{"n": n} for n in range(30)], queue=queue, key="a")
    arrivals = Arrivals()
    async with run_receiver() as receiver:
        receiver.behave = lambda events: 422
        async with running(log, queue, hook(receiver, batch=1)):
            await eventually_async(lambda: _has_letters(log, queue, 30))
            receiver.behave = arrivals.record
            await log.redrive(DeadLetterFilter(queue=queue))
            await taken(receiver, 30)
    assert arrivals.respect_bucket(5, 50)


@pytest.mark.slow
async def test_events_with_costs_are_charged_by_their_cost(log: Log, queue: str) -> None:
    await gate(log, queue, "token_bucket", 10, rate=40)
    costs = [1, 7, 2, 10, 3] * 4
    events = [{"key": "a", "data": {"n": n}, "headers": {COST_HEADER: str(cost)}} for n, cost in enumerate(costs)]
    await log.push([Batch(queue, events)])
    arrivals = Arrivals()
    async with run_receiver() as receiver:
        receiver.behave = arrivals.record
        async with running(log, queue, hook(receiver)):
            await taken(receiver, 20)
    assert sum(cost for _, cost in arrivals.times["a"]) == sum(costs) * TOKEN
    assert arrivals.respect_bucket(10, 40)


@pytest.mark.slow
async def test_a_shared_limit_holds_over_all_keys(log: Log, queue: str) -> None:
    await gate(log, queue, "token_bucket", 4, rate=40, shared=True)
    await push_each(log, queue, 15)
    arrivals = Arrivals()
    async with run_receiver() as receiver:
        receiver.behave = arrivals.record
        async with running(log, queue, hook(receiver, batch=1, concurrency=8)):
            await taken(receiver, 45)
    assert respects_bucket(sorted(chain.from_iterable(arrivals.times.values())), 4 * TOKEN, 40 * TOKEN)


@pytest.mark.slow
async def test_limits_that_change_apply_to_deliveries(log: Log, queue: str) -> None:
    query = await gate(log, queue, "token_bucket", 2, rate=0.001)
    await push_each(log, queue, 10)

    async def change(statement: str) -> None:
        async with log.database.connection() as conn:
            await conn.execute(statement, (query,))

    await change("INSERT INTO penstock.gate_limits (query, key, gate, paused) VALUES (%s, 'b', 0, true)")
    async with run_receiver() as receiver, running(log, queue, hook(receiver)):
        await taken(receiver, 4)
        assert {event["key"] for event in receiver.taken()} == {"a", "c"}
        await change("INSERT INTO penstock.gate_limits (query, key, gate, rate) VALUES (%s, '', 1, 100)")
        await change("UPDATE penstock.gate_limits SET paused = false WHERE query = %s AND key = 'b' AND gate = 0")
        await taken(receiver, 30)
        check_order(receiver, 10)


async def test_a_clock_that_was_set_back_neither_stops_deliveries_nor_allows_more(log: Log, queue: str) -> None:
    """A row with a time in the future counts as written now."""
    await gate(log, queue, "token_bucket", 2, rate=20)
    await push(log, [{"n": n} for n in range(6)], queue=queue, key="a")
    arrivals = Arrivals()
    async with run_receiver() as receiver:
        receiver.behave = arrivals.record
        async with running(log, queue, hook(receiver)):
            await taken(receiver, 6)
        async with log.database.connection() as conn:
            await conn.execute("UPDATE penstock.delivery_meters SET at_us = at_us + 3600000000")
        await push(log, [{"n": n} for n in range(6, 12)], queue=queue, key="a")
        async with running(log, queue, hook(receiver)):
            await taken(receiver, 12)
    assert arrivals.respect_bucket(2, 20)


async def test_buckets_that_are_full_for_a_day_are_forgotten(log: Log, queue: str) -> None:
    await gate(log, queue, "token_bucket", 5, rate=50)
    await push_each(log, queue, 1)
    async with run_receiver() as receiver:
        async with running(log, queue, hook(receiver)):
            await taken(receiver, 3)
        async with log.database.connection() as conn:
            await conn.execute("UPDATE penstock.delivery_meters SET at_us = at_us - 2 * 86400000000 WHERE key <> 'a'")
        await push(log, [{"n": 1}], queue=queue, key="a")
        async with running(log, queue, hook(receiver)):
            await taken(receiver, 4)
    async with log.database.connection() as conn:
        rows = await conn.execute(
            "SELECT key FROM penstock.delivery_meters m JOIN penstock.groups g ON g.id = m.group_id "
            "JOIN penstock.queues q ON q.id = g.queue_id WHERE q.name = %s",
            (queue,),
        )
        assert [key for (key,) in await rows.fetchall()] == ["a"]


async def test_an_event_that_costs_more_than_the_limit_is_a_dead_letter(log: Log, queue: str) -> None:
    await gate(log, queue, "token_bucket", 5, rate=50)
    events = [{"key": "a", "data": 1, "headers": {COST_HEADER: "6"}}, {"key": "a", "data": 2}]
    await log.push([Batch(queue, events)])
    async with run_receiver() as receiver, running(log, queue, hook(receiver)):
        await taken(receiver, 1)
    (letter,) = await letters(log, queue)
    assert "it costs 6, more than the capacity of 5" in letter.error


async def test_limits_can_be_left_out(log: Log, queue: str) -> None:
    await gate(log, queue, "token_bucket", 1, rate=0.001)
    await push(log, [{"n": n} for n in range(50)], queue=queue, key="a")
    async with run_receiver() as receiver, running(log, queue, hook(receiver), limits=False):
        await taken(receiver, 50)
    assert len(receiver.requests) == 1


async def test_requests_of_different_keys_run_at_once_and_those_of_a_key_in_order(log: Log, queue: str) -> None:
    await push_each(log, queue, 5)
    first = asyncio.Event()
    async with run_receiver() as receiver:
        sink = hook(receiver, batch=1, concurrency=3)
        write, begun = sink.write, set[str]()

        async def write_together(events: Any) -> None:
            begun.add(events[0].key)
            if len(begun) == len(KEYS):
                first.set()
            await first.wait()
            await write(events)

        sink.write = write_together  # type: ignore[method-assign]
        async with running(log, queue, sink):
            await taken(receiver, 15)
        check_order(receiver, 5)
        assert [len(request.events) for request in receiver.requests] == [1] * 15


def test_a_sink_that_writes_one_batch_at_a_time_refuses_concurrency(log: Log, tmp_path: Any) -> None:
    with pytest.raises(InvalidOption, match="File writes one batch at a time"):
        Sinks(log=log).add("q", File(tmp_path / "out.jsonl"), concurrency=2)


async def _is(condition: Any) -> bool:
    return bool(condition())


async def _has_letters(log: Log, queue: str, count: int) -> bool:
    return len(await letters(log, queue)) == count
