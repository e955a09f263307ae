"""Limits of connections: time, size of the request head, and number."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import psutil
import pytest

from tests.conditions import eventually
from tests.server.server_process import RunningServer, run_server
from tests.server.sockets import connect, read_to_end


@pytest.fixture(scope="module")
def limited(shared_url: str) -> Iterator[RunningServer]:
    """A server with short timeouts and few connections."""
    environ = {"PENSTOCK_REQUEST_SECONDS": "0.5", "PENSTOCK_IDLE_SECONDS": "0.5", "PENSTOCK_MAX_CONNECTIONS": "8"}
    with run_server(shared_url, environ=environ) as running:
        yield running


@pytest.mark.slow
def test_slow_request_head_times_out(limited: RunningServer) -> None:
    with connect(limited.url) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow:")
        response = read_to_end(connection)
    assert response.startswith(b"HTTP/1.1 408 ")
    assert b"/request-timeout" in response


def test_silent_connection_is_closed(limited: RunningServer) -> None:
    with connect(limited.url) as silent, connect(limited.url) as idle:
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_to_end(idle).startswith(b"HTTP/1.1 200 ")
        assert read_to_end(silent) == b""


def test_stalled_readers_are_disconnected(limited: RunningServer) -> None:
    push = {"batches": [{"queue": "unread", "events": [{"data": "x" * (1 << 20)}]}]}
    handshake = (
        b"GET /v1/queues/unread/tail HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    request = b"GET /v1/queues/unread/tail HTTP/1.1\r\nHost: localhost\r\n\r\n"
    server = psutil.Process(limited.process.pid)
    with connect(limited.url) as websocket_reader, connect(limited.url) as sse_reader:
        options = {"options": {"max_event_bytes": 2 << 20}}
        assert httpx.put(f"{limited.url}/v1/queues/unread", json=options).status_code == 200
        ports = {reader.getsockname()[1] for reader in (websocket_reader, sse_reader)}
        websocket_reader.sendall(handshake)
        sse_reader.sendall(request)
        for reader, status in ((websocket_reader, b"101"), (sse_reader, b"200")):
            assert reader.recv(12) == b"HTTP/1.1 " + status

        def are_disconnected() -> bool:
            httpx.post(f"{limited.url}/v1/push", json=push, timeout=30)
            return ports.isdisjoint(getattr(each.raddr, "port", 0) for each in server.net_connections())

        eventually(are_disconnected)


@pytest.mark.slow
def test_slow_reader_gets_the_whole_response(limited: RunningServer) -> None:
    assert httpx.put(f"{limited.url}/v1/queues/slow", json={}).status_code == 200
    for n in range(6):
        batch = {"queue": "slow", "events": [{"data": [n, "x" * 1_000_000]}]}
        assert httpx.post(f"{limited.url}/v1/push", json={"batches": [batch]}, timeout=30).status_code == 200
    with connect(limited.url) as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        reader.sendall(b"GET /v1/queues/slow/events?limit=6 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        response = b""
        # At four megabytes a second the response takes longer than all timeouts of this server.
        while part := reader.recv(100_000):
            response += part
            time.sleep(len(part) / 4_000_000)
    assert len(json.loads(response.partition(b"\r\n\r\n")[2])["events"]) == 6


@pytest.mark.parametrize(
    "request_head",
    [
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Large: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"X-Many: a\r\n" * 300 + b"\r\n",
    ],
    ids=["header", "address", "headers"],
)
def test_too_large_request_head_is_refused(shared_server: RunningServer, request_head: bytes) -> None:
    with connect(shared_server.url) as connection:
        connection.sendall(request_head)
        response = connection.recv(65_536)
    assert response.startswith(b"HTTP/1.1 431 ")
    assert b"/head-too-large" in response


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET healthz\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: elsewhere\r\n\r\n",
        b"GET /v1/queues/orders/tail HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    ],
    ids=["TLS", "no version", "two lengths", "negative length", "no host", "two hosts", "no host for a WebSocket"],
)
def test_invalid_http_is_refused(shared_server: RunningServer, data: bytes) -> None:
    with connect(shared_server.url) as connection:
        connection.sendall(data)
        response = read_to_end(connection)
    assert response.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in response


def test_http_1_0_needs_no_host(shared_server: RunningServer) -> None:
    with connect(shared_server.url) as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert b" 200 " in read_to_end(connection).partition(b"\r\n")[0]


def test_connection_limit(limited: RunningServer) -> None:
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(connect(limited.url))
        with connect(limited.url) as late:
            late.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            response = late.recv(65_536)
    assert response.startswith(b"HTTP/1.1 503 ")
    assert b"/overloaded" in response
    assert b"retry-after: 1" in response.lower()

    def is_answered() -> bool:
        try:
            return httpx.get(f"{limited.url}/healthz").status_code == 200
        except httpx.TransportError:
            return False

    eventually(is_answered)
