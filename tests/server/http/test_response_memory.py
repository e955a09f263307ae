"""What a server holds of responses until they are read: counted as they are sent, and no reader stops the others."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests import servers
from tests.server.server_process import RunningServer, run_server, wait_until
from tests.servers import Server

MEGABYTE = "x" * 1_000_000


@pytest.fixture(scope="module")
def frugal(pg18: Server) -> Iterator[RunningServer]:
    """A server that holds sixteen megabytes of responses, twelve of them of large ones."""
    environ = {"PENSTOCK_MAX_HELD_BYTES": str(16 << 20)}
    with pg18.fresh_database(servers.TEMPLATE) as url, run_server(url, environ=environ) as running:
        yield running


@pytest.fixture
def http(frugal: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=frugal.url, timeout=30) as client:
        yield client


def fill(http: httpx.Client, queue: str, datas: list[Any]) -> None:
    assert http.put(f"/v1/queues/{queue}", json={}).status_code == 200
    for data in datas:
        pushed = http.post("/v1/push", json={"batches": [{"queue": queue, "events": [{"data": data}]}]})
        assert pushed.status_code == 200, pushed.text


def bury(http: httpx.Client, queue: str, count: int, **why: str) -> None:
    """Make dead letters of so many events."""
    for _ in range(count):
        (event,) = http.post(f"/v1/queues/{queue}/groups/g/pop", json={}).json()["events"]
        place = {name: event[name] for name in ("partition_id", "offset", "lease_id")}
        acked = http.post(
            f"/v1/queues/{queue}/groups/g/ack", json={"acks": [{**place, "status": "dead_letter", **why}]}
        )
        assert acked.json()["results"][0]["success"], acked.text


def test_slow_reader_leaves_memory_for_others(frugal: RunningServer, http: httpx.Client) -> None:
    fill(http, "failing", list(range(9)))
    bury(http, "failing", 9, traceback=MEGABYTE)
    fill(http, "large", [[n, MEGABYTE] for n in range(12)])
    fill(http, "small", [1, 2, 3])
    assert len(http.get("/v1/queues/large/events", params={"limit": 12}).json()["events"]) >= 9
    where = urlsplit(frugal.url)
    with socket.socket() as reader:
        # Before it connects, or the system would take all of the response.
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        reader.connect((where.hostname, where.port))
        reader.sendall(b"GET /v1/dead-letters?queue=failing HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert reader.recv(12) == b"HTTP/1.1 200"
        for n in (1, 2, 3):
            popped = http.post("/v1/queues/small/groups/g/pop", json={"auto_ack": True})
            assert [event["data"] for event in popped.json()["events"]] == [n]
        # Who wants much gets what there is room for.
        some = http.post("/v1/queues/large/groups/g/pop", json={"batch": 12}).json()["events"]
        assert 1 <= len(some) <= 4

    def all_are_told() -> bool:
        response = http.get("/v1/dead-letters", params={"queue": "failing"})
        return response.status_code == 200 and len(response.json()["dead_letters"]) == 9

    # The room comes back when the server has heard that the reader is gone.
    wait_until(all_are_told)


def test_queen_dead_letter_pages_are_never_cut_short(http: httpx.Client) -> None:
    fill(http, "lost", [[n, MEGABYTE] for n in range(14)])
    bury(http, "lost", 14)

    def page(limit: int, offset: int) -> httpx.Response:
        return http.get("/api/v1/dlq", params={"queue": "lost", "limit": limit, "offset": offset})

    refused = page(100, 0)
    assert refused.status_code == 400
    told = re.search(r"limit=(\d+)", refused.json()["error"])
    assert told is not None, refused.text
    limit = int(told[1])
    numbers: list[int] = []
    for offset in range(0, 14, limit):
        response = page(limit, offset).json()
        assert (response["total"], response["pagination"]) == (14, {"limit": limit, "offset": offset})
        numbers += [message["data"][0] for message in response["messages"]]
    assert numbers == list(range(13, -1, -1))
