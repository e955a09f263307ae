from __future__ import annotations

import asyncio
import json
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from penstock import (
    AccessDenied,
    ConfigurationError,
    DatabaseUnavailable,
    InvalidEvent,
    InvalidOption,
    InvalidRequest,
    Penstock,
    QueueFull,
    RateLimited,
    ServerError,
    ServerUnavailable,
    SyncPenstock,
)
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.server.auth.api_keys import Keys
from penstock.server.http.endpoint import Role
from tests.client.conditions import eventually, numbered, seqs
from tests.client.proxy import LOSE, Proxy, answer, between
from tests.client.serving import served
from tests.server.serving import serving


def problem(status: int, kind: str, retry_after: int = 0) -> bytes:
    body = {"type": f"https://penstock.dev/problems/{kind}", "detail": "so it is", "retry_after": retry_after}
    return answer(f"{status} No", f"Retry-After: {retry_after}\r\n", json.dumps(body))


@pytest.fixture
def server(database_url: str) -> Iterator[str]:
    with served(database_url) as url:
        yield url


@pytest.fixture
async def proxy(server: str) -> AsyncIterator[Proxy]:
    async with between(server) as proxy:
        yield proxy


@pytest.fixture
async def q(proxy: Proxy) -> AsyncIterator[Penstock]:
    async with Penstock(proxy.url) as q:
        await q.queue("jobs").config(retry_limit=0, retry_delay_ms=0).create()
        yield q


async def test_a_push_whose_answer_is_lost_is_stored_once(q: Penstock, proxy: Proxy) -> None:
    proxy.plan.extend([LOSE, LOSE])

    result = await q.queue("jobs").push(numbered(3))

    assert (result.accepted, result.replayed) == (3, True)
    assert [pushed.offset for pushed in result] == [0, 1, 2]
    assert seqs(await q.queue("jobs").batch(10).pop()) == [0, 1, 2]


async def test_events_whose_delivery_is_lost_come_at_once_and_not_when_their_lease_ends(
    q: Penstock, proxy: Proxy
) -> None:
    await q.queue("jobs").push(numbered(3))
    proxy.plan.extend([LOSE, LOSE])

    events = await q.queue("jobs").batch(10).pop()

    assert seqs(events) == [0, 1, 2]
    assert all(await q.ack(events))


async def test_a_delivery_that_is_lost_is_not_forgotten_over_tries_that_never_arrive(q: Penstock, proxy: Proxy) -> None:
    await q.queue("jobs").push(numbered(3))
    proxy.plan.extend([LOSE, problem(503, "stopping"), problem(503, "stopping")])

    assert seqs(await q.queue("jobs").batch(10).pop()) == [0, 1, 2]


async def test_an_ack_whose_answer_is_lost_counts(q: Penstock, proxy: Proxy) -> None:
    await q.queue("jobs").push(numbered(3))
    events = await q.queue("jobs").batch(10).pop()
    proxy.plan.append(LOSE)

    assert all(await q.ack(events))
    assert await q.queue("jobs").lag() == 0


async def test_a_transaction_whose_answer_is_lost_happens_once(q: Penstock, proxy: Proxy) -> None:
    await q.queue("jobs").push(numbered(3))
    events = await q.queue("jobs").batch(10).pop()
    proxy.plan.append(LOSE)

    async with q.transaction() as tx:
        tx.ack(events)
        tx.queue("jobs").push({"data": {"seq": "more"}})

    assert tx.result is not None
    assert (tx.result.acked, tx.result.pushes[0].accepted) == (3, 1)
    assert seqs(await q.queue("jobs").batch(10).pop()) == ["more"]


async def test_dead_letters_that_are_sent_back_some_at_a_time_are_no_more_than_that_if_the_answer_is_lost(
    q: Penstock, proxy: Proxy
) -> None:
    await q.queue("jobs").push(numbered(4))
    await q.ack(await q.queue("jobs").batch(10).pop(), "dead_letter")
    proxy.plan.extend([problem(503, "stopping"), LOSE])

    with pytest.raises(ServerUnavailable, match="look before you ask again"):
        await q.queue("jobs").dlq().redrive(limit=1)
    assert await q.queue("jobs").dlq().count() == 3

    # All of them are all of them, however often.
    proxy.plan.append(LOSE)
    await q.queue("jobs").dlq().redrive(all=True)
    assert await q.queue("jobs").dlq().count() == 0


async def test_a_pop_that_is_cancelled_leaves_nothing_leased_even_if_its_answer_was_on_the_way(
    q: Penstock, proxy: Proxy
) -> None:
    await q.queue("jobs").push(numbered(1))
    proxy.plan.append(LOSE)
    popping = asyncio.create_task(q.queue("jobs").wait().pop())
    await proxy.lost.wait()
    popping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await popping

    async def comes_again() -> bool:
        return seqs(await q.queue("jobs").pop()) == [0]

    await eventually(comes_again)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, "rate-limited"), (429, "queue-full"), (503, "overloaded"), (503, "database-unavailable")],
)
async def test_who_is_told_to_come_again_does_so(q: Penstock, proxy: Proxy, status: int, kind: str) -> None:
    before = len(proxy.requests)
    proxy.plan.extend([problem(status, kind)] * 2)

    assert (await q.queue("jobs").push({"data": 1})).accepted == 1

    lines = [line for request in proxy.requests[before:] for line in request.lower().split(b"\r\n")]
    keys = [line for line in lines if line.startswith(b"idempotency-key")]
    assert len(keys) == 3
    assert len(set(keys)) == 1


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (429, "rate-limited", RateLimited),
        (429, "queue-full", QueueFull),
        (503, "overloaded", ServerUnavailable),
        (503, "database-unavailable", DatabaseUnavailable),
        (401, "unauthenticated", AccessDenied),
        (403, "forbidden", AccessDenied),
        (413, "too-large", InvalidRequest),
        (500, "internal", ServerError),
        (418, "of-tomorrow", ServerError),
    ],
)
async def test_who_is_not_to_wait_gets_the_error_that_it_was(
    proxy: Proxy, status: int, kind: str, error: type[Exception]
) -> None:
    proxy.plan.append(problem(status, kind, retry_after=1))
    async with Penstock(proxy.url, retry_seconds=0) as q:
        with pytest.raises(error, match="so it is"):
            await q.queues()


async def test_the_facts_of_an_error_come_through(server: str) -> None:
    async with Penstock(server, retry_seconds=0) as q:
        jobs = q.queue("jobs")
        await jobs.config(max_depth_events=2).create()
        await jobs.group("g").pop()
        await jobs.push(numbered(2))

        with pytest.raises(QueueFull) as full:
            await jobs.push(numbered(1))
        with pytest.raises(InvalidEvent) as bad:
            await jobs.push([{"data": 1}, {"data": 1, "time": "noon"}])
        with pytest.raises(InvalidOption) as odd:
            await q._session.transport.configure("x", {"lease_seconds": 1}, partitioning="hash", partitions=5000)

    assert (full.value.queue, full.value.limit, full.value.retry_after > 0) == ("jobs", 2, True)
    assert (bad.value.index, bad.value.field) == (1, "time")
    assert odd.value.option == "partitions"


async def test_a_server_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    async with Penstock(url, retry_seconds=0.1) as q:
        with pytest.raises(ServerUnavailable, match=f"the server at {url} gave no answer within"):
            await q.queues()


@pytest.mark.parametrize("reply", [answer("200 OK", body="<html>hello</html>"), answer("404 Not Found", body="no")])
async def test_what_is_no_penstock_server_is_told_apart(proxy: Proxy, reply: bytes) -> None:
    proxy.plan.append(reply)
    async with Penstock(proxy.url) as q:
        with pytest.raises(ServerError, match="check the url"):
            await q.queues()


async def test_a_key_is_sent_and_what_it_may_not_is_refused(database_url: str) -> None:
    async with Database(Settings(database_url)) as database:
        _, text = await Keys(database).create("me", [Role.PRODUCE], ("shop.*",))
    async with Penstock(database_url) as q:
        for name in ("shop.orders", "bank"):
            await q.queue(name).create()
    with served(database_url, require_access=True) as url:
        async with Penstock(url, api_key=str(text)) as q:
            assert (await q.queue("shop.orders").push({"data": 1})).accepted == 1
            assert [queue.name for queue in await q.queues()] == ["shop.orders"]
            with pytest.raises(AccessDenied, match="'bank'"):
                await q.queue("bank").push({"data": 1})
            with pytest.raises(AccessDenied, match="role"):
                await q.queue("shop.orders").pop()
        async with Penstock(url) as q:
            with pytest.raises(AccessDenied):
                await q.queues()


def test_a_certificate_has_to_be_one_that_is_trusted(database_url: str, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    subprocess.run([*command, "-keyout", key, "-out", cert, "-days", "1", *subject], check=True, capture_output=True)
    with serving(database_url, ["--tls-cert", str(cert), "--tls-key", str(key)]) as running:
        with SyncPenstock(running.url, tls_ca_file=cert) as q:
            assert q.queues() == []
        with SyncPenstock(running.url) as q, pytest.raises(ServerError, match="tls_ca_file"):
            q.queues()


def test_a_client_is_told_apart_by_its_url_and_by_the_environment(
    server: str, database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", "postgresql://localhost:1/none")
    monkeypatch.setenv("PENSTOCK_URL", server)
    with SyncPenstock() as q:
        assert q.queues() == []
    with SyncPenstock(database_url) as q:
        q.queue("jobs").create()
    with SyncPenstock(server + "/") as q:
        assert [queue.name for queue in q.queues()] == ["jobs"]


@pytest.mark.parametrize(
    ("url", "more", "says"),
    [
        ("http://", {}, "is not the address of a server"),
        ("http://user:secret@host", {}, "a key goes into PENSTOCK_API_KEY"),
        ("http://host:port", {}, "is not the address of a server"),
        ("https://host/?key=x", {}, "is not the address of a server"),
        ("http://host", {"api_key": "  "}, "the api_key is not one"),
        ("http://host", {"retry_seconds": -1}, "retry_seconds must be a number"),
        ("http://host", {"tls_ca_file": "nowhere.pem"}, "cannot be read from nowhere.pem"),
        ("postgresql://host/db", {"api_key": "x"}, "an api_key is for a server"),
    ],
)
def test_a_client_that_cannot_be_meant_is_refused(url: str, more: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as refusal:
        Penstock(url, **more)  # type: ignore[arg-type]  # what the test is about

    assert "secret" not in str(refusal.value)


async def test_a_transaction_of_the_users_own_needs_the_database(q: Penstock) -> None:
    with pytest.raises(InvalidRequest, match="which a server cannot join"):
        await q.transaction(object()).queue("jobs").push({"data": 1}).commit()  # type: ignore[arg-type]  # any will do


async def test_a_look_at_more_events_than_one_answer_holds_goes_on(q: Penstock) -> None:
    text = b"\n".join(b'{"seq": %d}' % n for n in range(10_500))
    await q.queue("jobs").push_ndjson(text)

    assert seqs(await q.queue("jobs").fetch("Default", 0, 20_000)) == list(range(10_500))
    assert seqs(await q.queue("jobs").fetch("Default", -3)) == [10_497, 10_498, 10_499]
    odd = await q.queue("jobs").browse(matching=lambda event: event.data["seq"] < 2)
    assert seqs(odd) == [1, 0]
    assert len(await q.queue("jobs").browse(limit=10_200)) == 10_200


async def test_a_list_of_more_dead_letters_than_one_answer_holds_goes_on(q: Penstock) -> None:
    await q.queue("tasks").create()
    for n in range(18):
        await q.queue("tasks").push([{"data": [n, "x" * 1_000_000]}])
    async with asyncio.timeout(30):
        left = 18
        while left:
            events = await q.queue("tasks").group("g").batch(100).pop()
            await q.ack(events, "dead_letter")
            left -= len(events)
    found = await q.queue("tasks").dlq().list(limit=100)
    assert [letter.data[0] for letter in found] == list(range(17, -1, -1))


async def test_what_is_said_of_an_error_comes_through_whatever_it_holds(q: Penstock) -> None:
    await q.queue("jobs").push(numbered(1))
    await q.ack(await q.queue("jobs").pop(), "dead_letter", error="odd \ud800 \x00")

    (letter,) = await q.queue("jobs").dlq().list()

    assert letter.error == "odd \\ud800 \\u0000"


async def test_odd_events_and_odd_names_are_refused_before_they_are_sent(q: Penstock) -> None:
    class Text(str):
        """Text of another type, which is as good."""

    assert (await q.queue("jobs").push([{"data": 1, "key": Text("a"), "id": Text("b")}])).accepted == 1
    for event, field in (
        ({"data": float("nan")}, "data"),
        ({"data": {1: 2}}, "data"),
        ({"data": 1, "key": b"x"}, "key"),
        ({"data": 1, "key": "\ud800"}, "key"),
        ({"data": "\ud800"}, "data"),
    ):
        with pytest.raises(InvalidEvent) as refusal:
            await q.queue("jobs").push([{"data": 0}, event])
        assert (refusal.value.index, refusal.value.field) == (1, field)
    with pytest.raises(InvalidEvent) as refusal:
        await q.queue("jobs").push_ndjson(b'{"a": 1}\n\n"\xff"')
    assert refusal.value.index == 1
    with pytest.raises(InvalidRequest, match="surrogate"):
        await q.queue("jobs").find("\ud800")
    deep: list[object] = []
    for _ in range(255):
        deep = [deep]
    assert (await q.queue("jobs").push({"data": deep})).accepted == 1


async def test_large_bodies_travel_compressed(q: Penstock, proxy: Proxy) -> None:
    events = [{"data": {"seq": n, "text": "the same again and again"}} for n in range(1_000)]

    assert (await q.queue("jobs").push(events)).accepted == 1_000

    assert b"content-encoding: zstd" in proxy.requests[-1].lower()
    assert len(proxy.requests[-1]) < 20_000
    assert seqs(await q.queue("jobs").batch(1_000).pop()) == list(range(1_000))
