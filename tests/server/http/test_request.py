"""Indexed headers."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from penstock.server.http.request import IndexedHeaders

RAW = [(b"content-type", b"text/plain"), (b"x-twice", b"one"), (b"x-twice", b"two"), (b"x-odd", b"\xe4")]


@pytest.fixture
def headers() -> IndexedHeaders:
    return IndexedHeaders({"headers": list(RAW)})


def test_headers_equal_those_of_starlette(headers: IndexedHeaders) -> None:
    usual = Headers(raw=list(RAW))
    for name in ("content-type", "Content-Type", "X-TWICE", "x-odd"):
        assert headers[name] == usual[name]
        assert headers.get(name) == usual.get(name)
        assert name in headers
        assert headers.getlist(name) == usual.getlist(name)
    assert headers.items() == usual.items()


def test_missing_header(headers: IndexedHeaders) -> None:
    assert "x-none" not in headers
    assert headers.get("x-none") is None
    assert headers.get("x-none", "") == ""
    with pytest.raises(KeyError):
        headers["x-none"]
