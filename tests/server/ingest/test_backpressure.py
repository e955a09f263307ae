"""Limits that slow producers down: queue depth, rate and memory."""

from __future__ import annotations

import concurrent.futures
import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from penstock import QueueFull, SyncPenstock
from tests.conditions import eventually
from tests.server.ingest.push_client import CreateQueue, QueueClient, read_problem
from tests.server.server_process import RunningServer, run_server
from tests.server.sockets import connect, read_to_end

pytestmark = pytest.mark.slow

NDJSON = "application/x-ndjson"
LIMIT = re.compile(r'"depth";r=(\d+);t=(\d+)')


def test_full_queue_refuses_with_retry_after(create_queue: CreateQueue) -> None:
    queue = create_queue(max_depth_events=100)
    handle = queue.store.queue(queue.queue).group("readers")
    handle.pop()
    assert queue.push_lines(list(range(100))).status_code == 200
    response = queue.push({"data": 1})
    status, name, problem = read_problem(response)
    assert (status, name) == (429, "queue-full")
    assert (problem["queue"], problem["depth"], problem["limit"]) == (queue.queue, 100, 100)
    assert problem["group"] == "readers"
    assert "group 'readers' is 100 events behind" in problem["detail"]
    assert int(response.headers["retry-after"]) >= 1
    assert response.headers["ratelimit-policy"] == '"depth";q=100'
    assert LIMIT.fullmatch(response.headers["ratelimit"])
    assert queue.data() == list(range(100))
    # It accepts events again after consumers have read some.
    while events := handle.batch(100).pop():
        queue.store.ack(events)
    eventually(lambda: queue.push({"data": "again"}).status_code == 200)


def test_full_queue_is_logged_once_with_its_slowest_group(database_url: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        log.open("w") as file,
        run_server(database_url, [], {}, file) as running,
        SyncPenstock(running.url, retry_seconds=0.1) as q,
    ):
        q.queue("orders").config(max_depth_events=1).create()
        q.queue("orders").group("slow").pop()
        q.queue("orders").push({"data": 1})
        for _ in range(3):
            with pytest.raises(QueueFull, match="group 'slow' is 1 event behind") as refused:
                q.queue("orders").push({"data": 2})
            assert refused.value.group == "slow"
    lines = [json.loads(line) for line in log.read_text().splitlines() if "is full" in line]
    assert [(line["level"].lower(), line["queue"], line["group"]) for line in lines] == [("warning", "orders", "slow")]


def test_response_has_the_remaining_capacity(create_queue: CreateQueue) -> None:
    queue = create_queue(max_depth_events=100)
    queue.store.queue(queue.queue).group("readers").pop()
    response = queue.push_lines(list(range(30)))
    found = LIMIT.fullmatch(response.headers["ratelimit"])
    assert found is not None
    assert found[1] == "70"
    assert "ratelimit" not in create_queue(max_depth_events=None).push({"data": 1}).headers


def test_queue_without_groups_has_capacity_and_a_limit_if_it_was_set(create_queue: CreateQueue) -> None:
    unlimited, limited = create_queue(), create_queue(max_depth_events=10)
    for queue, limit in ((unlimited, 100_000), (limited, 10)):
        response = queue.push_lines(list(range(10)))
        assert (response.status_code, response.headers["ratelimit-policy"]) == (200, f'"depth";q={limit}')
    assert unlimited.push({"data": 1}).status_code == 200
    status, name, problem = limited.refused({"data": 1})
    assert (status, name, problem["group"]) == (429, "queue-full", None)
    assert "no group reads it" in problem["detail"]


def test_full_queue_refuses_an_upload_before_its_body(create_queue: CreateQueue) -> None:
    queue = create_queue(max_depth_events=10)
    queue.store.queue(queue.queue).group("readers").pop()
    queue.push_lines(list(range(10)))
    with connect(str(queue.http.base_url)) as connection:
        connection.sendall(
            f"POST {queue.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
            "Content-Length: 500000000\r\nExpect: 100-continue\r\n\r\n".encode()
        )
        response = read_to_end(connection)
    assert response.startswith(b"HTTP/1.1 429")


def test_shed_events_are_counted(create_queue: CreateQueue) -> None:
    queue = create_queue(max_depth_events=10, overflow="shed")
    queue.store.queue(queue.queue).group("readers").pop()
    queue.push_lines(list(range(10)))
    response = queue.accepted([{"data": 1}, {"data": 2}])
    assert (response["accepted"], response["shed"]) == (0, 2)
    assert queue.store.queue(queue.queue).describe().size.shed == 2


@pytest.mark.parametrize("overflow", ["shed", "refuse"])
def test_full_queue_replays_repeated_requests(create_queue: CreateQueue, overflow: str) -> None:
    queue = create_queue(max_depth_events=20_000, overflow=overflow)
    queue.store.queue(queue.queue).group("readers").pop()
    large = b"".join(b'"%0100d"\n' % n for n in range(15_000))
    pushes = [(b"1\n2", "small"), (large, "large")]

    def responses() -> list[tuple[int, int, bool]]:
        responses = [queue.accepted(body, NDJSON, {"Idempotency-Key": key}) for body, key in pushes]
        return [(each["accepted"], each["shed"], each["replayed"]) for each in responses]

    assert responses() == [(2, 0, False), (15_000, 0, False)]
    queue.push_lines(list(range(4_998)))
    assert responses() == [(2, 0, True), (15_000, 0, True)]
    if overflow == "shed":
        pushes = [(b"3\n4", "small shed"), (large + b"5", "large shed")]
        assert responses() == [(0, 2, False), (0, 15_001, False)]
        assert responses() == [(0, 2, True), (0, 15_001, True)]
        assert queue.store.queue(queue.queue).describe().size.shed == 15_003
    else:
        assert queue.refused(b"3", NDJSON, {"Idempotency-Key": "new"})[:2] == (429, "queue-full")


@pytest.fixture(scope="module")
def rate_limited_server(shared_url: str) -> Iterator[RunningServer]:
    with run_server(shared_url, ["--producer-events-per-second", "50"]) as running:
        yield running


@pytest.fixture(scope="module")
def small_memory_server(shared_url: str) -> Iterator[RunningServer]:
    with run_server(shared_url, ["--max-held-bytes", str(1 << 20)]) as running:
        yield running


def test_producer_rate_limit(create_queue: CreateQueue, rate_limited_server: RunningServer) -> None:
    queue = create_queue()
    with httpx.Client(base_url=rate_limited_server.url) as http:
        quick = QueueClient(http, queue.store, queue.queue)
        assert quick.push_lines(list(range(120))).status_code == 200
        response = quick.push_lines([1])
        status, name, problem = read_problem(response)
        assert (status, name, problem["limit"]) == (429, "rate-limited", 50)
        assert response.headers["ratelimit-policy"] == '"producer";q=50;w=1'
        assert 1 <= int(response.headers["retry-after"]) <= 3
        eventually(lambda: quick.push_lines([1]).status_code == 200)


def test_producer_rate_limit_of_queen_clients(rate_limited_server: RunningServer) -> None:
    with httpx.Client(base_url=rate_limited_server.url) as http:

        def push(events: int) -> httpx.Response:
            items = [{"queue": "plane", "payload": n} for n in range(events)]
            return http.post("/api/v1/push", json={"items": items})

        eventually(lambda: push(80).status_code == 201)
        response = push(1)
        assert (response.status_code, response.json()["code"]) == (429, "rate_limited")
        assert response.headers["retry-after"] in ("1", "2")
        refused = http.post(
            "/api/v1/transaction", json={"operations": [{"type": "push", "items": [{"queue": "plane"}]}]}
        )
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        eventually(lambda: push(1).status_code == 201)


def test_scheduled_events_count_for_the_rate_limit(
    create_queue: CreateQueue, rate_limited_server: RunningServer
) -> None:
    queue = create_queue()
    with httpx.Client(base_url=rate_limited_server.url) as http:

        def schedule(events: int) -> int:
            operations = [
                {"op": "schedule", "queue": queue.queue, "key": str(n), "data": n, "seconds": 600}
                for n in range(events)
            ]
            return http.post("/v1/timers", json={"operations": operations}).status_code

        eventually(lambda: schedule(120) == 200)
        assert schedule(1) == 429
        assert QueueClient(http, queue.store, queue.queue).push_lines([1]).status_code == 429
        cancelled = {"op": "cancel", "queue": queue.queue, "key": "0"}
        assert http.post("/v1/timers", json={"operations": [cancelled]}).status_code == 200
        timer = {"op": "schedule", "queue": "plane", "timerKey": "a", "payload": "MQ==", "delayMs": 600_000}
        assert http.post("/api/v1/timers", json={"operations": [timer]}).status_code == 429


def test_memory_of_request_bodies_is_limited(create_queue: CreateQueue, small_memory_server: RunningServer) -> None:
    queue = create_queue()
    body = json.dumps({"data": "x" * 600_000}).encode()
    head = (
        f"POST {queue.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode()
    with connect(small_memory_server.url) as first:
        first.sendall(head + body[:-1])

        def refused() -> bool:
            with httpx.Client(base_url=small_memory_server.url) as http:
                response = http.post(queue.path, content=body, headers={"Content-Type": "application/json"})
            return response.status_code == 503 and response.json()["type"].endswith("/overloaded")

        eventually(refused)
        first.sendall(body[-1:])
        response = read_to_end(first)
    assert response.startswith(b"HTTP/1.1 200")
    assert len(queue.data()) == 1


def test_stalled_database_does_not_grow_memory(
    create_queue: CreateQueue, small_memory_server: RunningServer, shared_url: str
) -> None:
    queue = create_queue(partitions=1)
    body = b'"' + b"x" * 200_000 + b'"'

    def push() -> int:
        with httpx.Client(base_url=small_memory_server.url, timeout=60) as http:
            return QueueClient(http, queue.store, queue.queue).push(body, "application/x-ndjson").status_code

    with psycopg.connect(shared_url) as holder, concurrent.futures.ThreadPoolExecutor(12) as pool:
        holder.execute(
            "SELECT FROM penstock.partitions p JOIN penstock.queues q ON q.id = p.queue_id WHERE q.name = %s "
            "FOR UPDATE OF p",
            [queue.queue],
        )
        pushes = [pool.submit(push) for _ in range(12)]
        eventually(lambda: sum(each.done() for each in pushes) >= 7)
        assert {each.result() for each in pushes if each.done()} == {503}
        holder.rollback()
        statuses = [each.result() for each in pushes]
    assert statuses.count(200) == len(queue.data()) >= 1
    assert set(statuses) == {200, 503}
