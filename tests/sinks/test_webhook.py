"""The webhook sink against a real receiver that fails in all the ways receivers do."""

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

from penstock.core.errors import InvalidRequest, SinkBusy
from penstock.log.log import Log
from penstock.sinks import Backoff, Sinks, Webhook
from penstock.sinks.conformance import made_events
from penstock.sinks.http.address_filter import is_public, resolve
from penstock.sinks.http.circuit_breaker import Breaker
from penstock.sinks.http.signature import verify
from penstock.sinks.http.webhook import batch_id, event_id, retry_after
from tests.log.logs import eventually, letters, push
from tests.sinks.receiver import Answer, Receiver, receiving
from tests.sinks.test_outlets import Remember

QUICK = Backoff(first=0.01, longest=0.05)
LOCAL = ["127.0.0.0/8"]
SECRET = "whsec_" + "c2VjcmV0IHNlY3JldCBzZWNyZXQh"


def webhook(receiver: Receiver, **options: Any) -> Webhook:
    return Webhook(receiver.url, **{"allow": LOCAL, "backoff": QUICK, "timeout": 0.3, **options})


async def deliver(log: Log, queue: str, sink: Webhook, **pace: Any) -> Sinks:
    sinks = Sinks(log=log).add(queue, sink, group="hook", **{"backoff": QUICK, **pace})
    await sinks.run(idle_seconds=0.2)
    return sinks


async def test_batches_are_signed_and_carry_ids_that_stay_the_same(log: Log, queue: str) -> None:
    await push(log, [{"n": n} for n in range(5)], queue=queue, key="a")
    async with receiving() as receiver:
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
    async with receiving() as receiver:
        answers = iter([(429, {"retry-after": "0.4"}), (503, {"retry-after": "0.2"})])
        asked: list[float] = []

        def behave(events: Any) -> Answer:
            asked.append(time.monotonic())
            return next(answers, 200)

        receiver.behave = behave
        sinks = await deliver(log, queue, webhook(receiver))

    assert [asked[1] - asked[0] >= 0.4, asked[2] - asked[1] >= 0.2] == [True, True]
    assert sinks.counters[queue, "hook"].busy == 2


async def test_what_the_receiver_refuses_is_a_dead_letter_and_the_rest_arrives(log: Log, queue: str) -> None:
    await push(log, range(10), queue=queue, key="a")
    async with receiving() as receiver:
        receiver.behave = lambda events: 422 if any(event["data"] == 3 for event in events) else 200
        await deliver(log, queue, webhook(receiver))

        assert [event["data"] for event in receiver.taken()] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    (letter,) = await letters(log, queue)
    assert letter.data == 3
    assert "answered 422: ok" in letter.error


async def test_a_wrong_address_or_key_makes_no_dead_letters(log: Log, queue: str) -> None:
    await push(log, range(3), queue=queue, key="a")
    async with receiving() as receiver:
        answers = iter([401, 403, 404, 410, 302])
        receiver.behave = lambda events: next(answers, 200)
        await deliver(log, queue, webhook(receiver), attempts=1)
        assert [event["data"] for event in receiver.taken()] == [0, 1, 2]
    assert await letters(log, queue) == []


def _trouble(until: Callable[[], bool], seed: int) -> Callable[[Any], Answer]:
    """Fails in every way there is, for a while."""
    dice = random.Random(seed)

    def behave(events: Any) -> Answer:
        if until():
            return 200
        ways: list[Answer] = [200, 200, 500, 500, 429, (429, {"retry-after": "0.05"}), 503, "reset", "reset", "hang"]
        return dice.choice(ways)

    return behave


async def _under_fault(log: Log, queue: str, seconds: float, per_key: int) -> None:
    keys = [f"key-{i}" for i in range(8)]
    beside = Remember()
    async with receiving() as receiver:
        begun = time.monotonic()
        receiver.behave = _trouble(lambda: time.monotonic() - begun > seconds, seed=7)
        sinks = Sinks(log=log).add(queue, webhook(receiver), group="hook", backoff=QUICK, batch=20, attempts=None)
        sinks.add(queue, beside)
        running = asyncio.create_task(sinks.run())
        for n in range(per_key):
            await log.push([_batch(queue, key, n) for key in keys])

        async def beside_is_done() -> object:
            return len(beside.got) == per_key * len(keys)

        await eventually(beside_is_done)
        # The other sink is through while the receiver is still in trouble.
        was_in_trouble = time.monotonic() - begun < seconds
        while len(receiver.taken()) < per_key * len(keys):  # noqa: ASYNC110 - what happens beside us
            await asyncio.sleep(0.05)
        sinks.stop()
        await running
        taken = receiver.taken()
        failed = [request for request in receiver.requests if request.answered != 200]

    expected = {key: list(range(per_key)) for key in keys}
    assert {key: [e["data"] for e in taken if e["key"] == key] for key in keys} == expected
    assert {key: beside.of(key) for key in keys} == expected
    assert failed
    assert was_in_trouble
    assert await letters(log, queue) == []


def _batch(queue: str, key: str, n: int) -> Any:
    from penstock.log.log import Batch

    return Batch(queue, [{"data": n}], key=key)


async def test_every_event_arrives_in_order_per_key_however_the_receiver_fails(log: Log, queue: str) -> None:
    await _under_fault(log, queue, seconds=3.0, per_key=25)


@pytest.mark.chaos
async def test_every_event_arrives_in_order_per_key_after_half_a_minute_of_trouble(log: Log, queue: str) -> None:
    await _under_fault(log, queue, seconds=30.0, per_key=200)


async def test_a_receiver_that_is_down_is_left_alone_but_for_a_request_now_and_then() -> None:
    now = 0.0
    breaker = Breaker(3, Backoff(first=10, longest=10), lambda: now)
    for _ in range(3):
        breaker.check()
        breaker.failed()
    with pytest.raises(SinkBusy) as refused:
        breaker.check()
    assert 5 <= (refused.value.retry_after or 0) <= 10
    now = 11.0
    breaker.check()  # one is let through
    with pytest.raises(SinkBusy):
        breaker.check()  # and no second beside it
    breaker.succeeded()
    breaker.check()
    assert not breaker.is_open


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2001:4860:4860::8888", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),  # noqa: S104 - not listened on
        ("::1", False),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("fd00::1", False),
        ("fe80::1", False),
        ("224.0.0.1", False),
        ("168.63.129.16", False),
        ("192.88.99.1", False),
        ("::", False),
        ("::127.0.0.1", False),
        ("::ffff:0:127.0.0.1", False),
        ("64:ff9b:1::7f00:1", False),
        ("2001:0:4136:e378:8000:63bf:80ff:fffe", False),
        ("fd00:ec2::254", False),
        ("fec0::1", False),
        ("ff02::1", False),
        ("3fff::1", False),
        ("5f00::1", False),
    ],
)
def test_only_addresses_of_the_internet_are_public(address: str, public: bool) -> None:
    from ipaddress import ip_address

    assert is_public(ip_address(address)) is public


async def test_private_addresses_are_refused_unless_they_are_allowed() -> None:
    async with receiving() as receiver:
        for url in (receiver.url, receiver.url.replace("127.0.0.1", "localhost"), "http://169.254.169.254/latest"):
            with pytest.raises(InvalidRequest, match="not a public address"):
                await Webhook(url).open()
        assert await resolve("127.0.0.1", 80, ["127.0.0.1/32"]) == ["127.0.0.1"]
        assert receiver.requests == []


@pytest.mark.parametrize("url", ["ftp://example.com", "file:///etc/passwd", "https://", "https://me:pw@example.com/"])
def test_urls_that_are_no_webhooks_are_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="webhook"):
        Webhook(url)


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "HTTP_PROXY", "http://127.0.0.1:9")
    async with receiving() as receiver:
        sink = webhook(receiver)
        await sink.open()
        await sink.write(made_events([1, 2]))
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
    assert retry_after({"retry-after": said}) == seconds


@pytest.mark.parametrize(
    "host", ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0", "localhost", "[::1]", "[::ffff:7f00:1]", "[::]"]
)
async def test_a_private_address_is_refused_however_it_is_written(host: str) -> None:
    with pytest.raises(InvalidRequest, match=r"not a public address|cannot be read"):
        await Webhook(f"http://{host}:9/").open()


async def test_a_name_that_leads_elsewhere_the_second_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request is held against the address that it goes to, not against one that was looked up before."""
    async with receiving() as receiver:
        answers = iter(["93.184.215.14", "127.0.0.1"])
        loop = asyncio.get_running_loop()

        async def look_up(host: str, port: int, **_: Any) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

        monkeypatch.setattr(loop, "getaddrinfo", look_up)
        sink = Webhook(f"http://rebound.example:{receiver.url.rpartition(':')[2].strip('/')}/")
        await sink.open()
        with pytest.raises(InvalidRequest, match=r"127\.0\.0\.1, which is not a public address"):
            await sink.write(made_events([1]))
        await sink.close()
        assert not receiver.taken()


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
def test_headers_that_could_be_more_than_one_are_refused(headers: Any) -> None:
    with pytest.raises(InvalidRequest, match="header"):
        Webhook("https://example.com/", headers=headers)


async def test_an_answer_that_does_not_end_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sinks.http.webhook._READ_SECONDS", 0.05)
    async with receiving() as receiver:
        receiver.behave = lambda events: "endless"
        sink = webhook(receiver)
        await sink.open()
        await sink.write(made_events([1]))
        await sink.close()
        assert len(receiver.requests) == 1


async def test_an_address_that_is_down_is_not_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving() as receiver:

        async def look_up(host: str, port: int, **_: Any) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ("127.0.0.2", "127.0.0.1")]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
        sink = Webhook(receiver.url.replace("127.0.0.1", "twice.example"), allow=LOCAL)
        await sink.open()
        await sink.write(made_events([1]))
        await sink.close()
        assert [event["data"] for event in receiver.taken()] == [1]
        assert receiver.requests[0].headers["host"].startswith("twice.example:")


async def test_a_header_comes_once_however_it_is_written() -> None:
    async with receiving() as receiver:
        sink = webhook(receiver, headers={"Content-Type": "application/vnd.mine+json", "User-Agent": "me", "HOST": "x"})
        await sink.open()
        await sink.write(made_events([1]))
        await sink.close()
        (request,) = receiver.requests
        assert len(request.names) == len(set(request.names))
        assert (request.headers["content-type"], request.headers["user-agent"]) == ("application/vnd.mine+json", "me")
        assert request.headers["host"] == receiver.url.split("/")[2]


def test_ids_are_those_of_no_other_database() -> None:
    here = made_events([1, 2])
    there = made_events([1, 2], appended_at=here[0].appended_at + timedelta(microseconds=1))

    assert event_id(here[0]) == "1-0-1769860800000000"
    assert len({*map(event_id, here), *map(event_id, there)}) == 4
    assert batch_id(here) == batch_id(made_events([1, 2])) != batch_id(there)
