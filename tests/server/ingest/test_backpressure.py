"""Producers are told to slow down before anything breaks."""

from __future__ import annotations

import concurrent.futures
import json
import re
import socket
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from tests.client.conditions import soon
from tests.server.ingest.pushing import Door, problem
from tests.server.serving import Serving, serving

NDJSON = "application/x-ndjson"
LIMIT = re.compile(r'"depth";r=(\d+);t=(\d+)')


def test_a_full_queue_is_said_to_be_with_a_time_to_come_again(door: Callable[..., Door]) -> None:
    queue = door(max_depth_events=100)
    handle = queue.store.queue(queue.queue).group("readers")
    handle.pop()
    assert queue.lines(list(range(100))).status_code == 200
    answer = queue.push({"data": 1})
    status, name, said = problem(answer)
    assert (status, name) == (429, "queue-full")
    assert (said["queue"], said["depth"], said["limit"]) == (queue.queue, 100, 100)
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.headers["ratelimit-policy"] == '"depth";q=100'
    assert LIMIT.fullmatch(answer.headers["ratelimit"])
    assert queue.data() == list(range(100))
    # Drained below the mark, it accepts again.
    while events := handle.batch(100).pop():
        queue.store.ack(events)
    soon(lambda: queue.push({"data": "again"}).status_code == 200)


def test_success_says_how_much_room_is_left(door: Callable[..., Door]) -> None:
    queue = door(max_depth_events=100)
    queue.store.queue(queue.queue).group("readers").pop()
    answer = queue.lines(list(range(30)))
    found = LIMIT.fullmatch(answer.headers["ratelimit"])
    assert found is not None
    assert found[1] == "70"
    assert "ratelimit" not in door(max_depth_events=None).push({"data": 1}).headers


def test_a_full_queue_refuses_an_upload_before_it_is_sent(door: Callable[..., Door]) -> None:
    queue = door(max_depth_events=10)
    queue.store.queue(queue.queue).group("readers").pop()
    queue.lines(list(range(10)))
    parts = urlsplit(str(queue.http.base_url))
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10) as wire:
        wire.sendall(
            f"POST {queue.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
            "Content-Length: 500000000\r\nExpect: 100-continue\r\n\r\n".encode()
        )
        answer = b"".join(iter(lambda: wire.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 429")


def test_what_is_shed_is_counted_and_said(door: Callable[..., Door]) -> None:
    queue = door(max_depth_events=10, overflow="shed")
    queue.store.queue(queue.queue).group("readers").pop()
    queue.lines(list(range(10)))
    answer = queue.accepted([{"data": 1}, {"data": 2}])
    assert (answer["accepted"], answer["shed"]) == (0, 2)
    assert queue.store.queue(queue.queue).describe().size.shed == 2


@pytest.mark.parametrize("overflow", ["shed", "refuse"])
def test_what_was_answered_is_answered_again_however_full_the_queue_is(
    door: Callable[..., Door], overflow: str
) -> None:
    queue = door(max_depth_events=20_000, overflow=overflow)
    queue.store.queue(queue.queue).group("readers").pop()
    large = b"".join(b'"%0100d"\n' % n for n in range(15_000))
    pushes = [(b"1\n2", "small"), (large, "large")]

    def answers() -> list[tuple[int, int, bool]]:
        said = [queue.accepted(body, NDJSON, {"Idempotency-Key": key}) for body, key in pushes]
        return [(each["accepted"], each["shed"], each["replayed"]) for each in said]

    assert answers() == [(2, 0, False), (15_000, 0, False)]
    queue.lines(list(range(4_998)))
    assert answers() == [(2, 0, True), (15_000, 0, True)]
    if overflow == "shed":
        pushes = [(b"3\n4", "small shed"), (large + b"5", "large shed")]
        assert answers() == [(0, 2, False), (0, 15_001, False)]
        assert answers() == [(0, 2, True), (0, 15_001, True)]
        assert queue.store.queue(queue.queue).describe().size.shed == 15_003
    else:
        assert queue.refused(b"3", NDJSON, {"Idempotency-Key": "new"})[:2] == (429, "queue-full")


@pytest.fixture(scope="module")
def strict_server(module_url: str) -> Iterator[Serving]:
    with serving(module_url, ["--producer-events-per-second", "50"]) as running:
        yield running


@pytest.fixture(scope="module")
def small_server(module_url: str) -> Iterator[Serving]:
    with serving(module_url, ["--max-held-bytes", str(1 << 20)]) as running:
        yield running


def test_a_producer_that_is_too_fast_has_to_wait(door: Callable[..., Door], strict_server: Serving) -> None:
    queue = door()
    with httpx.Client(base_url=strict_server.url) as http:
        quick = Door(http, queue.store, queue.queue)
        assert quick.lines(list(range(120))).status_code == 200
        answer = quick.lines([1])
        status, name, said = problem(answer)
        assert (status, name, said["limit"]) == (429, "rate-limited", 50)
        assert answer.headers["ratelimit-policy"] == '"producer";q=50;w=1'
        assert 1 <= int(answer.headers["retry-after"]) <= 3
        soon(lambda: quick.lines([1]).status_code == 200)


def test_a_producer_that_is_too_fast_has_to_wait_on_the_message_plane_too(strict_server: Serving) -> None:
    with httpx.Client(base_url=strict_server.url) as http:

        def push(events: int) -> httpx.Response:
            items = [{"queue": "plane", "payload": n} for n in range(events)]
            return http.post("/api/v1/push", json={"items": items})

        soon(lambda: push(80).status_code == 201)
        answer = push(1)
        assert (answer.status_code, answer.json()["code"]) == (429, "rate_limited")
        assert answer.headers["retry-after"] in ("1", "2")
        refused = http.post(
            "/api/v1/transaction", json={"operations": [{"type": "push", "items": [{"queue": "plane"}]}]}
        )
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        soon(lambda: push(1).status_code == 201)


def test_a_process_holds_no_more_than_it_may(door: Callable[..., Door], small_server: Serving) -> None:
    queue = door()
    parts = urlsplit(small_server.url)
    address = (parts.hostname or "", parts.port or 0)
    body = json.dumps({"data": "x" * 600_000}).encode()
    head = (
        f"POST {queue.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode()
    with socket.create_connection(address, timeout=10) as first:
        first.sendall(head + body[:-1])

        def refused() -> bool:
            with httpx.Client(base_url=small_server.url) as http:
                answer = http.post(queue.path, content=body, headers={"Content-Type": "application/json"})
            return answer.status_code == 503 and answer.json()["type"].endswith("/overloaded")

        soon(refused)
        first.sendall(body[-1:])
        answer = b"".join(iter(lambda: first.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200")
    assert len(queue.data()) == 1


def test_a_database_that_stands_still_makes_pushes_wait_or_fail_and_the_process_not_grow(
    door: Callable[..., Door], small_server: Serving, module_url: str
) -> None:
    queue = door(partitions=1)
    body = b'"' + b"x" * 200_000 + b'"'

    def push() -> int:
        with httpx.Client(base_url=small_server.url, timeout=60) as http:
            return Door(http, queue.store, queue.queue).push(body, "application/x-ndjson").status_code

    with psycopg.connect(module_url) as holder, concurrent.futures.ThreadPoolExecutor(12) as pool:
        holder.execute(
            "SELECT FROM penstock.partitions p JOIN penstock.queues q ON q.id = p.queue_id WHERE q.name = %s "
            "FOR UPDATE OF p",
            [queue.queue],
        )
        pushes = [pool.submit(push) for _ in range(12)]
        soon(lambda: sum(each.done() for each in pushes) >= 7)
        assert {each.result() for each in pushes if each.done()} == {503}
        holder.rollback()
        statuses = [each.result() for each in pushes]
    assert statuses.count(200) == len(queue.data()) >= 1
    assert set(statuses) == {200, 503}
