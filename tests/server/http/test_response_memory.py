"""The memory of responses until they are sent."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.conditions import eventually
from tests.server.server_process import RunningServer, run_server

pytestmark = pytest.mark.slow

MEGABYTE = "x" * 1_000_000


@pytest.fixture(scope="module")
def small_memory(shared_url: str) -> Iterator[RunningServer]:
    """A server with sixteen megabytes for responses, twelve of them for large ones."""
    environ = {"PENSTOCK_MAX_HELD_BYTES": str(16 << 20)}
    with run_server(shared_url, environ=environ) as running:
        yield running


@pytest.fixture
def http(small_memory: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=small_memory.url, timeout=30) as client:
        yield client


def push_values(http: httpx.Client, queue: str, values: list[Any]) -> None:
    assert http.put(f"/v1/queues/{queue}", json={}).status_code == 200
    for data in values:
        pushed = http.post("/v1/push", json={"batches": [{"queue": queue, "events": [{"data": data}]}]})
        assert pushed.status_code == 200, pushed.text


def dead_letter(http: httpx.Client, queue: str, count: int, **details: str) -> None:
    """Make dead letters of some events."""
    for _ in range(count):
        (event,) = http.post(f"/v1/queues/{queue}/groups/g/pop", json={}).json()["events"]
        place = {name: event[name] for name in ("partition_id", "offset", "lease_id")}
        acked = http.post(
            f"/v1/queues/{queue}/groups/g/ack", json={"acks": [{**place, "status": "dead_letter", **details}]}
        )
        assert acked.json()["results"][0]["success"], acked.text


def test_slow_reader_leaves_memory_for_others(small_memory: RunningServer, http: httpx.Client) -> None:
    push_values(http, "held-failing", list(range(9)))
    dead_letter(http, "held-failing", 9, traceback=MEGABYTE)
    push_values(http, "held-large", [[n, MEGABYTE] for n in range(12)])
    push_values(http, "held-small", [1, 2, 3])
    assert len(http.get("/v1/queues/held-large/events", params={"limit": 12}).json()["events"]) >= 9
    where = urlsplit(small_memory.url)
    with socket.socket() as reader:
        # Set before connecting, or the system buffers the whole response.
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        reader.connect((where.hostname, where.port))
        reader.sendall(b"GET /v1/dead-letters?queue=held-failing HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert reader.recv(12) == b"HTTP/1.1 200"
        for n in (1, 2, 3):
            popped = http.post("/v1/queues/held-small/groups/g/pop", json={"auto_ack": True})
            assert [event["data"] for event in popped.json()["events"]] == [n]
        # A large pop returns as many events as fit.
        some = http.post("/v1/queues/held-large/groups/g/pop", json={"batch": 12}).json()["events"]
        assert 1 <= len(some) <= 4

    def all_are_returned() -> bool:
        response = http.get("/v1/dead-letters", params={"queue": "held-failing"})
        return response.status_code == 200 and len(response.json()["dead_letters"]) == 9

    # The memory is released when the server notices the disconnect.
    eventually(all_are_returned)


def test_queen_dead_letter_pages_are_never_cut_short(http: httpx.Client) -> None:
    push_values(http, "held-lost", [[n, MEGABYTE] for n in range(14)])
    dead_letter(http, "held-lost", 14)

    def page(limit: int, offset: int) -> httpx.Response:
        return http.get("/api/v1/dlq", params={"queue": "held-lost", "limit": limit, "offset": offset})

    refused = page(100, 0)
    assert refused.status_code == 400
    suggested = re.search(r"limit=(\d+)", refused.json()["error"])
    assert suggested is not None, refused.text
    limit = int(suggested[1])
    numbers: list[int] = []
    for offset in range(0, 14, limit):
        response = page(limit, offset).json()
        assert (response["total"], response["pagination"]) == (14, {"limit": limit, "offset": offset})
        numbers += [message["data"][0] for message in response["messages"]]
    assert numbers == list(range(13, -1, -1))
