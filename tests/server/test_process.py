"""The server as processes: how they start, stop, die, and whom they do not wait for."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect

from penstock.core.errors import ConfigurationError
from penstock.core.settings import Settings
from penstock.server.settings import ServerSettings
from tests import servers
from tests.cli.command_line import CommandLine
from tests.server.serving import Serving, eventually, serving
from tests.servers import Server


@pytest.fixture(scope="module")
def impatient(pg18: Server) -> Iterator[Serving]:
    """A server that does not wait long."""
    environ = {"PENSTOCK_REQUEST_SECONDS": "1", "PENSTOCK_IDLE_SECONDS": "1", "PENSTOCK_MAX_CONNECTIONS": "8"}
    with pg18.fresh_database(servers.TEMPLATE) as url, serving(url, environ=environ) as running:
        yield running


@contextmanager
def connected(running: Serving) -> Iterator[socket.socket]:
    where = urlsplit(running.url)
    with socket.create_connection((where.hostname, where.port), timeout=20) as connection:
        yield connection


def everything(connection: socket.socket) -> bytes:
    """What the server says until it ends the connection."""
    said = b""
    while part := connection.recv(65_536):
        said += part
    return said


def test_whoever_sends_slowly_is_cut_off(impatient: Serving) -> None:
    with connected(impatient) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow:")
        said = everything(connection)
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"/request-timeout" in said


def test_whoever_says_nothing_is_let_go(impatient: Serving) -> None:
    with connected(impatient) as silent, connected(impatient) as idle:
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert everything(idle).startswith(b"HTTP/1.1 200 ")
        assert everything(silent) == b""


def test_whoever_does_not_read_is_cut_off(impatient: Serving) -> None:
    pushed = {"batches": [{"queue": "unread", "events": [{"data": "x" * (1 << 20)}]}]}
    greeting = (
        b"GET /v1/queues/unread/tail HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    request = b"GET /v1/queues/unread/tail HTTP/1.1\r\nHost: localhost\r\n\r\n"
    server = psutil.Process(impatient.process.pid)
    with (
        httpx.Client(base_url=impatient.url, timeout=30) as http,
        connected(impatient) as socket_reader,
        connected(impatient) as event_reader,
    ):
        assert http.put("/v1/queues/unread", json={"options": {"max_event_bytes": 2 << 20}}).status_code == 200
        readers = {each.getsockname()[1] for each in (socket_reader, event_reader)}
        socket_reader.sendall(greeting)
        event_reader.sendall(request)
        for reader, status in ((socket_reader, b"101"), (event_reader, b"200")):
            assert reader.recv(12) == b"HTTP/1.1 " + status

        def are_gone() -> bool:
            http.post("/v1/push", json=pushed)
            return readers.isdisjoint(getattr(each.raddr, "port", 0) for each in server.net_connections())

        eventually(are_gone)


def test_whoever_reads_slowly_is_served_to_the_end(impatient: Serving) -> None:
    events = [{"data": [n, "x" * 1_000_000]} for n in range(9)]
    with httpx.Client(base_url=impatient.url, timeout=30) as http:
        assert http.put("/v1/queues/slow", json={}).status_code == 200
        for event in events:
            batch = {"queue": "slow", "events": [event]}
            assert http.post("/v1/push", json={"batches": [batch]}).status_code == 200
    with connected(impatient) as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        reader.sendall(b"GET /v1/queues/slow/events?limit=9 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        said = b""
        # Four megabytes a second are slow enough: this server does not wait for longer than one for anything.
        while part := reader.recv(100_000):
            said += part
            time.sleep(len(part) / 4_000_000)
    assert len(json.loads(said.partition(b"\r\n\r\n")[2])["events"]) == 9


@pytest.mark.parametrize(
    "request_head",
    [
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Large: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"X-Many: a\r\n" * 300 + b"\r\n",
    ],
    ids=["header", "address", "headers"],
)
def test_a_head_that_is_too_large_is_refused(impatient: Serving, request_head: bytes) -> None:
    with connected(impatient) as connection:
        connection.sendall(request_head)
        said = connection.recv(65_536)
    assert said.startswith(b"HTTP/1.1 431 ")
    assert b"/head-too-large" in said


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET healthz\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    ],
    ids=["TLS", "no version", "two lengths", "negative length"],
)
def test_what_is_no_request_is_refused(impatient: Serving, nonsense: bytes) -> None:
    with connected(impatient) as connection:
        connection.sendall(nonsense)
        said = everything(connection)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in said


def test_there_are_only_so_many_connections(impatient: Serving) -> None:
    with httpx.Client(base_url=impatient.url) as http:
        crowd = [socket.create_connection((urlsplit(impatient.url).hostname, urlsplit(impatient.url).port))]
        crowd += [socket.create_connection(crowd[0].getpeername()) for _ in range(20)]
        with connected(impatient) as late:
            late.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            said = late.recv(65_536)
        for each in crowd:
            each.close()
        assert said.startswith(b"HTTP/1.1 503 ")
        assert b"/overloaded" in said
        assert b"retry-after: 1" in said.lower()

        def is_answered() -> bool:
            try:
                return http.get("/healthz").status_code == 200
            except httpx.TransportError:
                return False

        eventually(is_answered)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:6632", "127.evil.example", "localhost.evil.example"])
def test_without_keys_a_server_answers_to_this_machine_s_names_only(impatient: Serving, host: str) -> None:
    assert httpx.get(f"{impatient.url}/healthz", headers={"Host": host}).status_code == 421
    for name in ("localhost", "localhost:6632", "127.0.0.1:1", "[::1]:6632"):
        assert httpx.get(f"{impatient.url}/healthz", headers={"Host": name}).status_code == 200


def test_pages_of_strangers_change_nothing(impatient: Serving) -> None:
    answer = httpx.post(f"{impatient.url}/healthz", headers={"Origin": "https://evil.example"})
    assert (answer.status_code, answer.json()["type"].rsplit("/")[-1]) == (403, "forbidden")
    assert httpx.post(f"{impatient.url}/healthz", headers={"Origin": impatient.url}).status_code == 405


def test_a_server_is_not_ready_without_its_database(pg18: Server) -> None:
    with pg18.fresh_database(servers.TEMPLATE) as url, serving(url) as running:
        name = url.split("/")[3].split("?")[0]
        with pg18.superuser() as conn, httpx.Client(base_url=running.url, timeout=30) as http:
            assert http.get("/readyz").status_code == 200
            conn.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false'.encode())
            conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
            eventually(lambda: http.get("/readyz").status_code == 503)
            assert http.get("/readyz").json()["type"].endswith("/database-unavailable")
            assert http.get("/healthz").status_code == 200
            conn.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true'.encode())
            eventually(lambda: http.get("/readyz").status_code == 200)
            with pg18.superuser(name) as inside:
                inside.execute(
                    "DELETE FROM penstock.migrations WHERE version = (SELECT max(version) FROM penstock.migrations)"
                )
            assert http.get("/readyz").status_code == 503


def workers(running: Serving) -> list[psutil.Process]:
    return psutil.Process(running.process.pid).children()


def test_a_worker_that_is_killed_is_replaced(pg18: Server) -> None:
    with pg18.fresh_database(servers.TEMPLATE) as url, serving(url, ["--workers", "2"]) as running:
        eventually(lambda: len(workers(running)) == 2)
        (killed, kept) = workers(running)
        killed.kill()
        eventually(lambda: len(workers(running)) == 2 and killed.pid not in {each.pid for each in workers(running)})
        assert kept.is_running()
        for _ in range(10):
            assert httpx.get(f"{running.url}/readyz").status_code == 200
        running.process.terminate()
        assert running.process.wait(20) == 0


#: A supervisor that is told to stop at the moment at which it has started a worker.
_STOPPED_EARLY = """
import os, signal
fork = os.fork
def fork_and_stop():
    os.fork, pid = fork, fork()
    if pid:
        os.kill(os.getpid(), signal.SIGTERM)
    return pid
os.fork = fork_and_stop
from penstock.cli import main
main()
"""


def test_workers_that_are_just_being_started_are_stopped_too(database_url: str) -> None:
    command = [sys.executable, "-c", _STOPPED_EARLY, "serve", "--port", "0", "--workers", "3"]
    environ = {**os.environ, "PENSTOCK_DATABASE_URL": database_url}
    # Those who are forgotten are ended hard in the end, which takes 35 seconds.
    ended = subprocess.run(command, env=environ, capture_output=True, timeout=20, check=False)
    assert ended.returncode == 0, ended.stderr


def test_workers_do_not_outlive_their_supervisor(pg18: Server) -> None:
    with pg18.fresh_database(servers.TEMPLATE) as url, serving(url, ["--workers", "2"]) as running:
        eventually(lambda: len(workers(running)) == 2)
        orphans = workers(running)
        running.process.kill()
        gone, alive = psutil.wait_procs(orphans, timeout=20)
        assert len(gone) == 2
        assert not alive


def test_asked_twice_a_server_ends_at_once(database_url: str) -> None:
    with serving(database_url) as running:
        running.process.send_signal(signal.SIGINT)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(20) == 1


def start_in_vain(*options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **environ}
    command = [sys.executable, "-m", "penstock", "serve", "--port", "0", *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("count", ["1", "2"])
def test_without_a_database_it_says_so_and_ends(count: str) -> None:
    ended = start_in_vain("--workers", count, PENSTOCK_DATABASE_URL="postgresql://localhost:1/nowhere")
    assert ended.returncode == 4
    assert "error: PostgreSQL cannot be reached" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_beyond_loopback_it_starts_only_if_callers_need_keys(database_url: str) -> None:
    ended = start_in_vain("--host", "0.0.0.0", PENSTOCK_DATABASE_URL=database_url)  # noqa: S104
    assert ended.returncode == 2
    assert "penstock key create" in ended.stderr
    assert "travel in the clear" in ended.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tls-cert", "pyproject.toml"], "TLS needs both"),
        (["--tls-cert", "nowhere.pem", "--tls-key", "nowhere.key"], "there is no such file"),
        (["--cors-origin", "*"], "is no origin"),
        (["--request-log", "some"], "set it to one of all, errors, none"),
        (["--host", "no.such.host.invalid"], "is no address to listen on"),
    ],
)
def test_what_cannot_be_right_is_said_at_the_start(options: list[str], said: str) -> None:
    ended = CommandLine("postgresql://localhost:1/nowhere")("serve", "--port", "0", *options)
    assert ended.exit_code == 2
    assert said in " ".join(ended.stderr.split())


def test_settings_come_from_the_environment() -> None:
    environ = {
        "PENSTOCK_WORKERS": "3",
        "PENSTOCK_CORS_ORIGINS": "https://a.example, http://b.example:1",
        "PENSTOCK_HOST": "",
    }
    settings = ServerSettings.from_env(Settings(), environ, port=7000, host=None)
    assert (settings.workers, settings.port, settings.host) == (3, 7000, "127.0.0.1")
    assert settings.cors_origins == ("https://a.example", "http://b.example:1")
    for wrong in ({"PENSTOCK_WORKERS": "0"}, {"PENSTOCK_WORKERS": "two"}, {"PENSTOCK_REQUIRE_ACCESS": "maybe"}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            ServerSettings.from_env(Settings(), wrong)


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        *((host, True) for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost")),
        *((host, False) for host in ("0.0.0.0", "::", "10.0.0.1", "example.com", "")),  # noqa: S104
    ],
)
def test_keys_are_asked_for_beyond_loopback(host: str, is_loopback: bool) -> None:
    assert ServerSettings(Settings(), host).is_loopback is is_loopback
    assert ServerSettings(Settings(), host).is_guarded is not is_loopback
    assert ServerSettings(Settings(), host, require_access=True).is_guarded


def test_a_port_that_is_taken_is_said(impatient: Serving, database_url: str) -> None:
    port = str(urlsplit(impatient.url).port)
    ended = CommandLine(database_url)("serve", "--port", port)
    assert ended.exit_code == 2
    assert f"port {port} of 127.0.0.1 cannot be used" in " ".join(ended.stderr.split())


def test_it_speaks_https(database_url: str, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    subprocess.run([*command, "-keyout", key, "-out", cert, "-days", "1", *subject], check=True, capture_output=True)
    with serving(database_url, ["--tls-cert", str(cert), "--tls-key", str(key)]) as running:
        assert running.url.startswith("https://")
        assert httpx.get(f"{running.url}/healthz", verify=ssl.create_default_context(cafile=cert)).status_code == 200
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{running.url}/healthz")


def test_a_request_is_a_line_of_the_log(database_url: str, tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+") as log:
        with serving(database_url, stderr=log) as running, httpx.Client(base_url=running.url) as http:
            answer = http.get("/healthz", headers={"X-Request-Id": "mine"})
            http.get("/v1/nowhere/secret", params={"token": "secret"}, headers={"Authorization": "Bearer secret"})
        log.seek(0)
        lines = [json.loads(line) for line in log]
    first, second = (line for line in lines if line["logger"] == "penstock.request")
    assert (first["method"], first["route"], first["status"], first["request_id"]) == ("GET", "/healthz", 200, "mine")
    assert first["bytes"] == len(answer.content)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"])
    assert (second["status"], second["route"]) == (404, "")
    assert "secret" not in json.dumps(lines)


def test_a_websocket_that_is_refused_is_a_line_of_the_log_and_no_error(database_url: str, tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+") as log:
        with serving(database_url, stderr=log) as running:
            address = running.url.replace("http", "ws")
            httpx.put(f"{running.url}/v1/queues/orders", json={})
            for path, origin, status in (
                ("/v1/queries/nobody/live", None, 404),
                ("/v1/queues/orders/tail", "http://elsewhere.example", 403),
                ("/v1/queues/orders/tail?key=", None, 422),
                ("/nowhere", None, 403),
            ):
                with pytest.raises(InvalidStatus) as refused:
                    connect(address + path, origin=origin, open_timeout=20)  # type: ignore[arg-type]  # a plain text
                assert refused.value.response.status_code == status
            with connect(f"{address}/v1/queues/orders/tail") as talking:
                talking.send(b"\xff\xfe", text=True)
                with pytest.raises(ConnectionClosedError, match="1007"):
                    list(talking)
            _leave_in_the_middle_of_a_handshake(running)
        log.seek(0)
        lines = [json.loads(line) for line in log]
    assert [line for line in lines if line["level"] != "info"] == []
    sockets = [line for line in lines if line["logger"] == "penstock.request" and line["method"] == "GET"]
    assert {line["status"] for line in sockets} >= {101, 403, 404, 422}


def _leave_in_the_middle_of_a_handshake(running: Serving) -> None:
    """Ask for WebSockets that will be refused, and hang up before they are."""
    for _ in range(20):
        with connected(running) as line:
            line.sendall(
                b"GET /v1/queries/nobody/live HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
                b"Upgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            )
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert httpx.get(f"{running.url}/healthz").status_code == 200
