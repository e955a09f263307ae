"""Undoing a body's compression as it arrives, a little at a time: no few bytes can become too many at once."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

import zstandard

from penstock.server.http.errors import Problem

#: How much is given out at once.
_PIECE = 256 << 10
# What a sender may ask us to remember; RFC 9659 allows no more.
_LARGEST_WINDOW = 8 << 20
# A block of four bytes can become 128 KiB, and there is no way to stop in the middle of what was fed.
_FED = 512


class Inflater(Protocol):
    """Undoes a compression."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What more of the body is known now."""

    def finish(self) -> None:
        """Raise a problem unless the body came to its end."""


class Plain:
    """Undoes nothing."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The same."""
        yield data

    def finish(self) -> None:
        """Nothing can be missing that HTTP does not notice."""


class Gzip:
    """One gzip member after the other."""

    def __init__(self) -> None:
        self._member: zlib._Decompress | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What more of the body is known now."""
        while data:
            if self._member is None:
                self._member = zlib.decompressobj(wbits=31)
            try:
                found = self._member.decompress(data, _PIECE)
            except zlib.error as error:
                raise _damaged("gzip", error) from None
            if found:
                yield found
            if self._member.eof:
                data, self._member = self._member.unused_data, None
            else:
                data = self._member.unconsumed_tail

    def finish(self) -> None:
        """Raise a problem in the middle of a member."""
        if self._member is not None:
            raise _cut_off("gzip")


class Zstd:
    """One zstd frame after the other."""

    def __init__(self) -> None:
        self._frame: zstandard.ZstdDecompressionObj | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What more of the body is known now."""
        for start in range(0, len(data), _FED):
            some = data[start : start + _FED]
            while some:
                if self._frame is None:
                    self._frame = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW).decompressobj()
                try:
                    found = self._frame.decompress(some)
                except zstandard.ZstdError as error:
                    raise _damaged("zstd", error) from None
                if found:
                    yield found
                some = b""
                if self._frame.eof:
                    some, self._frame = self._frame.unused_data, None

    def finish(self) -> None:
        """Raise a problem in the middle of a frame."""
        if self._frame is not None:
            raise _cut_off("zstd")


def inflater(encoding: str | None) -> Inflater:
    """What undoes an encoding."""
    if encoding is None:
        return Plain()
    return Gzip() if encoding == "gzip" else Zstd()


def _damaged(encoding: str, error: Exception) -> Problem:
    return Problem("invalid-encoding", f"the body is said to be {encoding} and is not: {error}")


def _cut_off(encoding: str) -> Problem:
    return Problem("invalid-encoding", f"the {encoding} of the body is cut off before its end")
