"""Requests that could be parsed in two ways are refused, and the connection is closed."""

from __future__ import annotations

import socket

import pytest

from penstock.client.http.retrying_http import RetryingHttpClient
from penstock.core.errors import ConfigurationError, InvalidRequest
from tests.server.server_process import RunningServer
from tests.server.sockets import connect, read_to_end

HIDDEN = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /v1/push HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
AMBIGUOUS = {
    "two kinds of length": POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "kinds of length reversed": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + HIDDEN,
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 44\r\n\r\n{}" + HIDDEN,
    "list of lengths": POST + b"Content-Length: 2, 44\r\n\r\n{}" + HIDDEN,
    "length with a sign": POST + b"Content-Length: +2\r\n\r\n{}" + HIDDEN,
    "negative length": POST + b"Content-Length: -2\r\n\r\n{}" + HIDDEN,
    "length in hex": POST + b"Content-Length: 0x2\r\n\r\n{}" + HIDDEN,
    "two encodings": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + HIDDEN,
    "space before the colon": POST + b"Content-Length : 2\r\n\r\n{}" + HIDDEN,
    "invalid chunk size": POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n" + HIDDEN,
    "huge chunk size": POST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}" + HIDDEN,
    "null byte in a header": POST + b"X: a\0b\r\nContent-Length: 2\r\n\r\n{}" + HIDDEN,
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_ambiguous_requests_are_refused(name: str, shared_server: RunningServer) -> None:
    with connect(shared_server.url) as connection:
        connection.sendall(AMBIGUOUS[name])
        connection.shutdown(socket.SHUT_WR)
        response = read_to_end(connection)
    assert response.startswith(b"HTTP/1.1 4"), response[:200]
    assert response.count(b"HTTP/1.1 ") == 1, response
    assert b" 200 " not in response


@pytest.mark.parametrize("key", ["a\r\nX: y", "a b", "schlüssel", "a\0b"])
def test_client_refuses_invalid_api_keys(key: str) -> None:
    with pytest.raises(ConfigurationError, match="API key"):
        RetryingHttpClient("http://127.0.0.1:1", api_key=key)


async def test_client_refuses_header_values_with_line_breaks() -> None:
    client = RetryingHttpClient("http://127.0.0.1:1", api_key="penstock_a_b\n", retry_seconds=0)
    await client.open()
    with pytest.raises(InvalidRequest, match="a line break"):
        await client.request("GET", "queues", object, key="a\r\nHost: elsewhere")
    await client.close()
