"""The log of requests."""

from __future__ import annotations

import json
import re
import socket
import struct
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect as connect_websocket

from tests.server.server_process import RunningServer, run_server
from tests.server.sockets import connect

pytestmark = pytest.mark.slow


def test_requests_and_refused_websockets_are_logged_without_errors(shared_url: str, tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+") as log:
        with run_server(shared_url, stderr=log) as running:
            with httpx.Client(base_url=running.url) as http:
                response = http.get("/healthz", headers={"X-Request-Id": "mine"})
                secret = {"Authorization": "Bearer secret"}
                http.get("/v1/nowhere/secret", params={"token": "secret"}, headers=secret)
                assert http.put("/v1/queues/logged", json={}).status_code == 200
            _refuse_websockets(running)
            _disconnect_during_handshakes(running)
        log.seek(0)
        lines = [json.loads(line) for line in log]
    requests = [line for line in lines if line["logger"] == "penstock.request"]
    first, second, *_ = requests
    assert (first["method"], first["route"], first["status"], first["request_id"]) == ("GET", "/healthz", 200, "mine")
    assert first["bytes"] == len(response.content)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"])
    assert (second["status"], second["route"]) == (404, "")
    assert "secret" not in json.dumps(lines)
    assert [line for line in lines if line["level"] != "info"] == []
    assert {line["status"] for line in requests if line["method"] == "GET"} >= {101, 403, 404, 422}


def _refuse_websockets(running: RunningServer) -> None:
    for path, origin, status in (
        ("/v1/queries/nobody/live", None, 404),
        ("/v1/queues/logged/tail", "http://elsewhere.example", 403),
        ("/v1/queues/logged/tail?key=", None, 422),
        ("/nowhere", None, 403),
    ):
        with pytest.raises(InvalidStatus) as refused:
            connect_websocket(running.websocket_url + path, origin=origin, open_timeout=20)  # type: ignore[arg-type]  # a plain text
        assert refused.value.response.status_code == status
    with connect_websocket(f"{running.websocket_url}/v1/queues/logged/tail") as websocket:
        websocket.send(b"\xff\xfe", text=True)
        with pytest.raises(ConnectionClosedError, match="1007"):
            list(websocket)


def _disconnect_during_handshakes(running: RunningServer) -> None:
    """Send handshakes that will be refused, and reset the connections before that."""
    for _ in range(20):
        with connect(running.url) as connection:
            connection.sendall(
                b"GET /v1/queries/nobody/live HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
                b"Upgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            )
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert httpx.get(f"{running.url}/healthz").status_code == 200
