"""Decompression of request bodies in small steps, so that a few bytes cannot expand into many at once."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

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


class Decompressor:
    """Decompresses consecutive gzip members or zstd frames; without an encoding it passes data on."""

    def __init__(self, encoding: str | None) -> None:
        self.encoding = encoding
        #: The gzip member or zstd frame that is read: a decompression object of zlib or zstandard.
        self._member: Any = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the output for more input."""
        if self.encoding is None:
            yield data
            return
        step = _ZSTD_INPUT_BYTES if self.encoding == "zstd" else max(len(data), 1)
        for start in range(0, len(data), step):
            yield from self._decompress(data[start : start + step])

    def finish(self) -> None:
        """Raise a problem if the compressed data is truncated. Without compression, the HTTP parser notices that."""
        if self._member is not None:
            raise Problem("invalid-encoding", f"the {self.encoding} data of the body is truncated")

    def _decompress(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._member is None:
                self._member = _create_member(self.encoding)
            member = self._member
            try:
                if self.encoding == "zstd":
                    output, data = member.decompress(data), b""
                else:
                    output = member.decompress(data, _OUTPUT_BYTES)
                    data = member.unconsumed_tail
            except (zlib.error, zstandard.ZstdError) as error:
                raise Problem("invalid-encoding", f"the body is not valid {self.encoding}: {error}") from None
            if output:
                yield output
            if member.eof:
                data, self._member = member.unused_data, None


def _create_member(encoding: str | None) -> Any:
    if encoding == "gzip":
        return zlib.decompressobj(wbits=31)
    return zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).decompressobj()


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
