"""Decompression of request bodies in small steps, so that a few bytes cannot expand into many at once."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

import zstandard
from starlette.datastructures import Headers

from penstock.server.http.errors import Problem

ENCODINGS = ("gzip", "zstd")
#: Largest piece of output.
_OUTPUT_BYTES = 256 << 10
#: Largest zstd window; RFC 9659 allows no more.
_MAX_WINDOW_BYTES = 8 << 20
#: Input per step for zstd: a block of four bytes can become 128 KiB, and decompressing one input cannot be interrupted.
_ZSTD_INPUT_BYTES = 512


class Decompressor(Protocol):
    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the output for more input."""

    def finish(self) -> None:
        """Raise a problem if the body is truncated."""


class NoCompression:
    def feed(self, data: bytes) -> Iterator[bytes]:
        yield data

    def finish(self) -> None:
        """Do nothing: the HTTP parser notices a truncated body."""


class GzipDecompressor:
    """Decompresses consecutive gzip members."""

    def __init__(self) -> None:
        self._member: zlib._Decompress | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._member is None:
                self._member = zlib.decompressobj(wbits=31)
            try:
                output = self._member.decompress(data, _OUTPUT_BYTES)
            except zlib.error as error:
                raise _damaged("gzip", error) from None
            if output:
                yield output
            if self._member.eof:
                data, self._member = self._member.unused_data, None
            else:
                data = self._member.unconsumed_tail

    def finish(self) -> None:
        if self._member is not None:
            raise _truncated("gzip")


class ZstdDecompressor:
    """Decompresses consecutive zstd frames."""

    def __init__(self) -> None:
        self._frame: zstandard.ZstdDecompressionObj | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _ZSTD_INPUT_BYTES):
            step = data[start : start + _ZSTD_INPUT_BYTES]
            while step:
                if self._frame is None:
                    self._frame = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).decompressobj()
                try:
                    output = self._frame.decompress(step)
                except zstandard.ZstdError as error:
                    raise _damaged("zstd", error) from None
                if output:
                    yield output
                step = b""
                if self._frame.eof:
                    step, self._frame = self._frame.unused_data, None

    def finish(self) -> None:
        if self._frame is not None:
            raise _truncated("zstd")


def create_decompressor(encoding: str | None) -> Decompressor:
    if encoding is None:
        return NoCompression()
    return GzipDecompressor() if encoding == "gzip" else ZstdDecompressor()


def content_encoding(headers: Headers) -> str | None:
    """Return the encoding of a body, None for no compression; raise a problem if it is not supported."""
    if "content-encoding" not in headers:
        return None
    listed = [part.strip().lower() for part in ",".join(headers.getlist("content-encoding")).split(",")]
    encodings = ["gzip" if part == "x-gzip" else part for part in listed if part not in ("", "identity")]
    if not encodings:
        return None
    if len(encodings) > 1 or encodings[0] not in ENCODINGS:
        supported = ", ".join(ENCODINGS)
        raise Problem(
            "unsupported-media-type",
            f"Content-Encoding: {', '.join(encodings)[:100]} is not supported; use one of {supported}, once",
            {"accepted_encodings": list(ENCODINGS)},
            {"Accept-Encoding": supported},
        )
    return encodings[0]


def _damaged(encoding: str, error: Exception) -> Problem:
    return Problem("invalid-encoding", f"the body is not valid {encoding}: {error}")


def _truncated(encoding: str) -> Problem:
    return Problem("invalid-encoding", f"the {encoding} data of the body is truncated")
