"""What could be read as one request or as two is refused, and the connection with it."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest

from penstock.client.http.retrying_http import RetryingHttpClient
from penstock.core.errors import ConfigurationError, InvalidRequest
from tests.server.server_process import RunningServer

HIDDEN = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /v1/push HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
AMBIGUOUS = {
    "two kinds of length": POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "the other way round": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + HIDDEN,
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 44\r\n\r\n{}" + HIDDEN,
    "a list of lengths": POST + b"Content-Length: 2, 44\r\n\r\n{}" + HIDDEN,
    "a length with a sign": POST + b"Content-Length: +2\r\n\r\n{}" + HIDDEN,
    "a negative length": POST + b"Content-Length: -2\r\n\r\n{}" + HIDDEN,
    "a length in hex": POST + b"Content-Length: 0x2\r\n\r\n{}" + HIDDEN,
    "chunked twice over": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a space before the colon": POST + b"Content-Length : 2\r\n\r\n{}" + HIDDEN,
    "no size of a chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n" + HIDDEN,
    "a size of a chunk beyond all": POST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}" + HIDDEN,
    "a null byte in a header": POST + b"X: a\0b\r\nContent-Length: 2\r\n\r\n{}" + HIDDEN,
}


def exchange(url: str, sent: bytes) -> bytes:
    """All that the server says until it ends the connection."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30) as conn:
        conn.sendall(sent)
        conn.shutdown(socket.SHUT_WR)
        said = b""
        while part := conn.recv(65536):
            said += part
        return said


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_ambiguous_requests_are_refused(name: str, shared_server: RunningServer) -> None:
    said = exchange(shared_server.url, AMBIGUOUS[name])
    assert said.startswith(b"HTTP/1.1 4"), said[:200]
    assert said.count(b"HTTP/1.1 ") == 1, said
    assert b" 200 " not in said


@pytest.mark.parametrize("key", ["a\r\nX: y", "a b", "schlüssel", "a\0b"])
def test_client_refuses_invalid_api_keys(key: str) -> None:
    with pytest.raises(ConfigurationError, match="API key"):
        RetryingHttpClient("http://127.0.0.1:1", api_key=key)


async def test_client_refuses_header_values_with_line_breaks() -> None:
    talk = RetryingHttpClient("http://127.0.0.1:1", api_key="penstock_a_b\n", retry_seconds=0)
    await talk.open()
    with pytest.raises(InvalidRequest, match="a line break"):
        await talk.send("GET", "queues", key="a\r\nHost: elsewhere")
    await talk.close()
