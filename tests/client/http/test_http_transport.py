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
from penstock.client.connect import transport_for
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.server.auth.api_keys import ApiKeyStore
from penstock.server.auth.identity import Role
from tests.client.conditions import numbered_events, sequence_numbers
from tests.client.proxy import LOSE_RESPONSE, Proxy, response, run_proxy
from tests.client.server_thread import serve_in_thread
from tests.conditions import eventually_async
from tests.server.server_process import run_server


def problem(status: int, kind: str, retry_after: int = 0) -> bytes:
    body = {"type": f"https://penstock.dev/problems/{kind}", "detail": "the detail", "retry_after": retry_after}
    return response(f"{status} No", f"Retry-After: {retry_after}\r\n", json.dumps(body))


@pytest.fixture
def server(database_url: str) -> Iterator[str]:
    with serve_in_thread(database_url) as url:
        yield url


@pytest.fixture
async def proxy(server: str) -> AsyncIterator[Proxy]:
    async with run_proxy(server) as proxy:
        yield proxy


@pytest.fixture
async def q(proxy: Proxy) -> AsyncIterator[Penstock]:
    async with Penstock(proxy.url) as q:
        await q.queue("jobs").config(retry_limit=0, retry_delay_ms=0).create()
        yield q


async def test_a_push_with_a_lost_response_is_stored_once(q: Penstock, proxy: Proxy) -> None:
    proxy.plan.extend([LOSE_RESPONSE, LOSE_RESPONSE])

    result = await q.queue("jobs").push(numbered_events(3))

    assert (result.accepted, result.replayed) == (3, True)
    assert [pushed.offset for pushed in result] == [0, 1, 2]
    assert sequence_numbers(await q.queue("jobs").batch(10).pop()) == [0, 1, 2]


async def test_a_timer_with_a_lost_response_is_scheduled_once(q: Penstock, proxy: Proxy) -> None:
    proxy.plan.extend([LOSE_RESPONSE, LOSE_RESPONSE])

    result = await q.timer("jobs", "remind").schedule("late", delay_seconds=3600)

    assert result.status == "scheduled", "a second execution would have rescheduled it"


async def test_events_of_a_lost_pop_response_are_redelivered_at_once(q: Penstock, proxy: Proxy) -> None:
    await q.queue("jobs").push(numbered_events(3))
    proxy.plan.extend([LOSE_RESPONSE, LOSE_RESPONSE])

    events = await q.queue("jobs").batch(10).pop()

    assert sequence_numbers(events) == [0, 1, 2]
    assert all(await q.ack(events))


async def test_a_lost_pop_is_released_after_attempts_that_failed(q: Penstock, proxy: Proxy) -> None:
    await q.queue("jobs").push(numbered_events(3))
    proxy.plan.extend([LOSE_RESPONSE, problem(503, "stopping"), problem(503, "stopping")])

    assert sequence_numbers(await q.queue("jobs").batch(10).pop()) == [0, 1, 2]


async def test_an_ack_with_a_lost_response_counts(q: Penstock, proxy: Proxy) -> None:
    await q.queue("jobs").push(numbered_events(3))
    events = await q.queue("jobs").batch(10).pop()
    proxy.plan.append(LOSE_RESPONSE)

    assert all(await q.ack(events))
    assert await q.queue("jobs").lag() == 0


async def test_a_transaction_with_a_lost_response_is_committed_once(q: Penstock, proxy: Proxy) -> None:
    await q.queue("jobs").push(numbered_events(3))
    events = await q.queue("jobs").batch(10).pop()
    proxy.plan.append(LOSE_RESPONSE)

    async with q.transaction() as tx:
        tx.ack(events)
        tx.queue("jobs").push({"data": {"seq": "more"}})

    assert tx.result is not None
    assert (tx.result.acked, tx.result.pushes[0].accepted) == (3, 1)
    assert sequence_numbers(await q.queue("jobs").batch(10).pop()) == ["more"]


async def test_a_limited_redrive_is_not_repeated_after_a_lost_response(q: Penstock, proxy: Proxy) -> None:
    await q.queue("jobs").push(numbered_events(4))
    await q.ack(await q.queue("jobs").batch(10).pop(), "dead_letter")
    proxy.plan.extend([problem(503, "stopping"), LOSE_RESPONSE])

    with pytest.raises(ServerUnavailable, match="check before you repeat it"):
        await q.queue("jobs").dlq().redrive(limit=1)
    assert await q.queue("jobs").dlq().count() == 3

    # A redrive of all dead letters can be repeated.
    proxy.plan.append(LOSE_RESPONSE)
    await q.queue("jobs").dlq().redrive(all=True)
    assert await q.queue("jobs").dlq().count() == 0


async def test_a_cancelled_pop_releases_its_lease(q: Penstock, proxy: Proxy) -> None:
    await q.queue("jobs").push(numbered_events(1))
    proxy.plan.append(LOSE_RESPONSE)
    popping = asyncio.create_task(q.queue("jobs").wait().pop())
    await proxy.lost.wait()
    popping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await popping

    async def is_redelivered() -> bool:
        return sequence_numbers(await q.queue("jobs").pop()) == [0]

    await eventually_async(is_redelivered)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, "rate-limited"), (429, "queue-full"), (503, "overloaded"), (503, "database-unavailable")],
)
async def test_retryable_responses_are_retried(q: Penstock, proxy: Proxy, status: int, kind: str) -> None:
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
async def test_problem_types_raise_their_errors(proxy: Proxy, status: int, kind: str, error: type[Exception]) -> None:
    proxy.plan.append(problem(status, kind, retry_after=1))
    async with Penstock(proxy.url, retry_seconds=0) as q:
        with pytest.raises(error, match="the detail"):
            await q.queues()


async def test_errors_have_their_attributes(server: str) -> None:
    async with Penstock(server, retry_seconds=0) as q:
        jobs = q.queue("jobs")
        await jobs.config(max_depth_events=2).create()
        await jobs.group("g").pop()
        await jobs.push(numbered_events(2))

        with pytest.raises(QueueFull) as full:
            await jobs.push(numbered_events(1))
        with pytest.raises(InvalidEvent) as bad:
            await jobs.push([{"data": 1}, {"data": 1, "time": "noon"}])
        transport = transport_for(Settings.from_env(url=server, database_url=None))
        await transport.open()
        with pytest.raises(InvalidOption) as odd:
            await transport.configure("x", {"lease_seconds": 1}, partitioning="hash", partitions=5000)
        await transport.close()

    assert (full.value.queue, full.value.limit, full.value.retry_after > 0) == ("jobs", 2, True)
    assert (bad.value.index, bad.value.field) == (1, "time")
    assert odd.value.option == "partitions"


async def test_a_push_that_waits_for_room_says_so(q: Penstock, proxy: Proxy, caplog: pytest.LogCaptureFixture) -> None:
    proxy.plan.append(problem(429, "queue-full", retry_after=5))
    pushing = asyncio.create_task(q.queue("jobs").push(numbered_events(1)))

    async def is_reported() -> bool:
        return "waiting: the detail" in caplog.text

    await eventually_async(is_reported)
    pushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pushing


async def test_an_unreachable_server_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    async with Penstock(url, retry_seconds=0.1) as q:
        with pytest.raises(ServerUnavailable, match=f"nothing listens at {url}: the connection was refused"):
            await q.queues()


async def test_a_server_without_tls_is_reported_as_such(server: str) -> None:
    async with Penstock(server.replace("http://", "https://"), retry_seconds=0.1) as q:
        with pytest.raises(ServerUnavailable, match="does not speak TLS: write the url with http://"):
            await q.queues()


@pytest.mark.parametrize("reply", [response("200 OK", body="<html>hello</html>"), response("404 Not Found", body="no")])
async def test_responses_of_other_servers_raise_server_error(proxy: Proxy, reply: bytes) -> None:
    proxy.plan.append(reply)
    async with Penstock(proxy.url) as q:
        with pytest.raises(ServerError, match="check the url"):
            await q.queues()


async def test_the_api_key_is_sent(database_url: str) -> None:
    async with Database(Settings(database_url)) as database:
        _, text = await ApiKeyStore(database).create("me", [Role.PRODUCE], ("shop.*",))
    async with Penstock(database_url) as q:
        for name in ("shop.orders", "bank"):
            await q.queue(name).create()
    with serve_in_thread(database_url, require_access=True) as url:
        async with Penstock(url, api_key=str(text)) as q:
            assert (await q.queue("shop.orders").push({"data": 1})).accepted == 1
            assert [queue.name for queue in await q.queues()] == ["shop.orders"]
            with pytest.raises(AccessDenied, match="'bank'"):
                await q.queue("bank").push({"data": 1})
            with pytest.raises(AccessDenied, match="role"):
                await q.queue("shop.orders").pop()
        async with Penstock(url) as q:
            with pytest.raises(AccessDenied, match=r"takes it from api_key= or PENSTOCK_API_KEY"):
                await q.queues()


def test_an_untrusted_certificate_is_refused(database_url: str, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    subprocess.run([*command, "-keyout", key, "-out", cert, "-days", "1", *subject], check=True, capture_output=True)
    with run_server(database_url, ["--tls-cert", str(cert), "--tls-key", str(key)]) as running:
        with SyncPenstock(running.url, tls_ca_file=cert) as q:
            assert q.queues() == []
        with SyncPenstock(running.url) as q, pytest.raises(ServerError, match="tls_ca_file"):
            q.queues()


def test_the_url_selects_server_or_database(
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
    ("url", "arguments", "message"),
    [
        ("http://", {}, "is not the address of a server"),
        ("http://user:secret@host", {}, "a key goes into PENSTOCK_API_KEY"),
        ("http://host:port", {}, "is not the address of a server"),
        ("https://host/?key=x", {}, "is not the address of a server"),
        ("http://host", {"api_key": "  "}, "the api_key is not valid"),
        ("http://host", {"retry_seconds": -1}, "retry_seconds must be a number"),
        ("http://host", {"tls_ca_file": "nowhere.pem"}, "cannot be read from nowhere.pem"),
        ("postgresql://host/db", {"api_key": "x"}, "an api_key is for a server"),
    ],
)
def test_invalid_client_arguments_are_refused(url: str, arguments: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as refusal:
        Penstock(url, **arguments)  # type: ignore[arg-type]  # the error under test

    assert "secret" not in str(refusal.value)


async def test_a_user_transaction_needs_the_database(q: Penstock) -> None:
    with pytest.raises(InvalidRequest, match="a server cannot join"):
        await q.transaction(object()).queue("jobs").push({"data": 1}).commit()  # type: ignore[arg-type]  # any object


async def test_fetch_and_browse_read_several_pages(q: Penstock) -> None:
    text = b"\n".join(b'{"seq": %d}' % n for n in range(10_500))
    await q.queue("jobs").push_ndjson(text)

    assert sequence_numbers(await q.queue("jobs").fetch("Default", 0, 20_000)) == list(range(10_500))
    assert sequence_numbers(await q.queue("jobs").fetch("Default", -3)) == [10_497, 10_498, 10_499]
    odd = await q.queue("jobs").browse(matching=lambda event: event.data["seq"] < 2)
    assert sequence_numbers(odd) == [1, 0]
    assert len(await q.queue("jobs").browse(limit=10_200)) == 10_200


async def test_dead_letters_are_listed_over_several_pages(q: Penstock) -> None:
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


async def test_invalid_characters_in_an_error_are_escaped(q: Penstock) -> None:
    await q.queue("jobs").push(numbered_events(1))
    await q.ack(await q.queue("jobs").pop(), "dead_letter", error="odd \ud800 \x00")

    (letter,) = await q.queue("jobs").dlq().list()

    assert letter.error == "odd \\ud800 \\u0000"


async def test_invalid_events_are_refused_before_they_are_sent(q: Penstock) -> None:
    class Text(str):
        """A subclass of str."""

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


async def test_large_bodies_are_compressed(q: Penstock, proxy: Proxy) -> None:
    events = [{"data": {"seq": n, "text": "the same again and again"}} for n in range(1_000)]

    assert (await q.queue("jobs").push(events)).accepted == 1_000

    assert b"content-encoding: zstd" in proxy.requests[-1].lower()
    assert len(proxy.requests[-1]) < 20_000
    assert sequence_numbers(await q.queue("jobs").batch(1_000).pop()) == list(range(1_000))
