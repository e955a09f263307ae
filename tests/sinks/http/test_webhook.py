"""The webhook sink against a receiver on a real socket that fails in many ways."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock.core.errors import InvalidRequest
from penstock.log.log import Log
from penstock.sinks import Backoff, Sinks, Webhook
from penstock.sinks.conformance import make_events
from penstock.sinks.http.signature import verify
from penstock.sinks.http.webhook import batch_id, event_id, parse_retry_after
from tests.conditions import eventually_async
from tests.log.logs import letters, push
from tests.sinks.http.webhook_receiver import Answer, Receiver, run_receiver
from tests.sinks.memory_sink import MemorySink

QUICK = Backoff(first=0.01, longest=0.05)
LOCAL = ["127.0.0.0/8"]
SECRET = "whsec_" + "c2VjcmV0IHNlY3JldCBzZWNyZXQh"


def webhook(receiver: Receiver, **options: Any) -> Webhook:
    return Webhook(receiver.url, **{"allow": LOCAL, "backoff": QUICK, "timeout": 0.3, **options})


async def deliver(log: Log, queue: str, sink: Webhook, **pace: Any) -> Sinks:
    sinks = Sinks(log=log).add(queue, sink, group="hook", **{"backoff": QUICK, **pace})
    await sinks.run(idle_seconds=0.2)
    return sinks


async def test_batches_are_signed_and_their_ids_are_stable(log: Log, queue: str) -> None:
    await push(log, [{"n": n} for n in range(5)], queue=queue, key="a")
    async with run_receiver() as receiver:
        answers = iter([500, 200])
        receiver.behave = lambda events: next(answers, 200)
        await deliver(log, queue, webhook(receiver, secret=SECRET), batch=1)

        first, second = receiver.requests[:2]
        assert [verify(SECRET, r.headers, r.body) for r in receiver.requests] == [True] * 6
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        assert first.body == second.body
        assert not verify(SECRET, first.headers, first.body + b" ")
        assert not verify("whsec_" + "b3RoZXIgb3RoZXIgb3RoZXIgb3RoZXI=", first.headers, first.body)
        assert not verify(SECRET, first.headers, first.body, now=time.time() + 1000)
        assert [event["data"] for event in receiver.taken()] == [{"n": n} for n in range(5)]
        assert first.events[0]["key"] == "a"


async def test_retry_after_is_honoured(log: Log, queue: str) -> None:
    await push(log, [1], queue=queue, key="a")
    async with run_receiver() as receiver:
        answers = iter([(429, {"retry-after": "0.4"}), (503, {"retry-after": "0.2"})])
        asked: list[float] = []

        def behave(events: Any) -> Answer:
            asked.append(time.monotonic())
            return next(answers, 200)

        receiver.behave = behave
        sinks = await deliver(log, queue, webhook(receiver))

    assert [asked[1] - asked[0] >= 0.4, asked[2] - asked[1] >= 0.2] == [True, True]
    assert sinks.counters[queue, "hook"].busy == 2


async def test_events_rejected_by_the_receiver_are_dead_letters(log: Log, queue: str) -> None:
    await push(log, range(10), queue=queue, key="a")
    async with run_receiver() as receiver:
        receiver.behave = lambda events: 422 if any(event["data"] == 3 for event in events) else 200
        await deliver(log, queue, webhook(receiver))

        assert [event["data"] for event in receiver.taken()] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    (letter,) = await letters(log, queue)
    assert letter.data == 3
    assert "responded 422: ok" in letter.error


async def test_statuses_of_a_wrong_url_or_key_make_no_dead_letters(log: Log, queue: str) -> None:
    await push(log, range(3), queue=queue, key="a")
    async with run_receiver() as receiver:
        answers = iter([401, 403, 404, 410, 302])
        receiver.behave = lambda events: next(answers, 200)
        await deliver(log, queue, webhook(receiver), attempts=1)
        assert [event["data"] for event in receiver.taken()] == [0, 1, 2]
    assert await letters(log, queue) == []


def fail_randomly(is_recovered: Callable[[], bool], seed: int) -> Callable[[Any], Answer]:
    """Return a behaviour that fails in all ways until the receiver recovers."""
    generator = random.Random(seed)

    def behave(events: Any) -> Answer:
        if is_recovered():
            return 200
        ways: list[Answer] = [200, 200, 500, 500, 429, (429, {"retry-after": "0.05"}), 503, "reset", "reset", "hang"]
        return generator.choice(ways)

    return behave


async def deliver_to_failing_receiver(log: Log, queue: str, failures: int, per_key: int) -> None:
    keys = [f"key-{i}" for i in range(8)]
    total = per_key * len(keys)
    other = MemorySink()
    recovered = asyncio.Event()
    async with run_receiver() as receiver:
        receiver.behave = fail_randomly(recovered.is_set, seed=7)
        sinks = Sinks(log=log).add(queue, webhook(receiver), group="hook", backoff=QUICK, batch=20, attempts=None)
        sinks.add(queue, other)
        running = asyncio.create_task(sinks.run())
        for n in range(per_key):
            await log.push([_batch(queue, key, n) for key in keys])

        async def is_other_sink_done() -> bool:
            return len(other.received) == total

        async def has_failed_often() -> bool:
            failed = [request for request in receiver.requests if request.answered != 200]
            return len(failed) >= failures or len(receiver.taken()) == total

        async def is_done() -> bool:
            return len(receiver.taken()) == total

        # The other sink does not wait for the receiver to recover.
        await eventually_async(is_other_sink_done)
        await eventually_async(has_failed_often)
        recovered.set()
        await eventually_async(is_done)
        sinks.stop()
        await running
        taken = receiver.taken()
        failed = [request for request in receiver.requests if request.answered != 200]

    expected = {key: list(range(per_key)) for key in keys}
    assert {key: [event["data"] for event in taken if event["key"] == key] for key in keys} == expected
    assert {key: other.data_of(key) for key in keys} == expected
    assert failed
    assert await letters(log, queue) == []


def _batch(queue: str, key: str, n: int) -> Any:
    from penstock.log.write.encode.batch import Batch

    return Batch(queue, [{"data": n}], key=key)


@pytest.mark.slow
async def test_events_arrive_in_order_per_key_from_a_failing_receiver(log: Log, queue: str) -> None:
    await deliver_to_failing_receiver(log, queue, failures=20, per_key=25)


@pytest.mark.long
async def test_events_arrive_in_order_per_key_after_many_failures(log: Log, queue: str) -> None:
    await deliver_to_failing_receiver(log, queue, failures=200, per_key=200)


@pytest.mark.parametrize("url", ["ftp://example.com", "file:///etc/passwd", "https://", "https://me:pw@example.com/"])
def test_invalid_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="webhook"):
        Webhook(url)


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "HTTP_PROXY", "http://127.0.0.1:9")
    async with run_receiver() as receiver:
        sink = webhook(receiver)
        await sink.open()
        await sink.write(make_events([1, 2]))
        await sink.close()
        assert [event["data"] for event in receiver.taken()] == [1, 2]


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("3", 3.0),
        ("-1", 0.0),
        ("1e9", 3600.0),
        ("nonsense", None),
        ("nan", None),
        ("Mon, 01 Jan 2001 00:00:00 GMT", 0.0),
    ],
)
def test_retry_after_is_a_number_or_a_date(said: str, seconds: float | None) -> None:
    assert parse_retry_after({"retry-after": said}) == seconds


@pytest.mark.parametrize(
    "headers",
    [
        {"x": "a\r\nHost: b"},
        {"x\r\ny": "a"},
        {"": "a"},
        {"a b": "c"},
        {"x": "\0"},
        {"x": "ü"},
        {"x": 1},
        {"Content-Length": "1"},
    ],
)
def test_invalid_headers_are_refused(headers: Any) -> None:
    with pytest.raises(InvalidRequest, match="header"):
        Webhook("https://example.com/", headers=headers)


async def test_a_response_without_an_end_counts_by_its_status() -> None:
    async with run_receiver() as receiver:
        receiver.behave = lambda events: "endless"
        sink = webhook(receiver, read_seconds=0.05)
        await sink.open()
        await sink.write(make_events([1]))
        await sink.close()
        assert len(receiver.requests) == 1


async def test_the_next_address_is_tried_if_one_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_receiver() as receiver:

        async def look_up(host: str, port: int, **_: Any) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ("127.0.0.2", "127.0.0.1")]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
        sink = Webhook(receiver.url.replace("127.0.0.1", "twice.example"), allow=LOCAL)
        await sink.open()
        await sink.write(make_events([1]))
        await sink.close()
        assert [event["data"] for event in receiver.taken()] == [1]
        assert receiver.requests[0].headers["host"].startswith("twice.example:")


async def test_headers_are_sent_once_in_any_case() -> None:
    async with run_receiver() as receiver:
        sink = webhook(receiver, headers={"Content-Type": "application/vnd.mine+json", "User-Agent": "me", "HOST": "x"})
        await sink.open()
        await sink.write(make_events([1]))
        await sink.close()
        (request,) = receiver.requests
        assert len(request.names) == len(set(request.names))
        assert (request.headers["content-type"], request.headers["user-agent"]) == ("application/vnd.mine+json", "me")
        assert request.headers["host"] == receiver.url.split("/")[2]


def test_ids_differ_between_databases() -> None:
    here = make_events([1, 2])
    there = make_events([1, 2], appended_at=here[0].appended_at + timedelta(microseconds=1))

    assert event_id(here[0]) == "1-0-1769860800000000"
    assert len({*map(event_id, here), *map(event_id, there)}) == 4
    assert batch_id(here) == batch_id(make_events([1, 2])) != batch_id(there)
