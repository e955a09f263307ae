"""Where events are read from: a file or a pipe, compressed or not."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import typer
import zstandard

from penstock.core.errors import InvalidRequest

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, slots=True)
class Source:
    """What is read, undone, and how far that is of the whole."""

    stream: BinaryIO
    #: What lies on disk; None for a pipe.
    file: BinaryIO | None

    @property
    def size(self) -> int | None:
        """How many bytes there are to read; None if nobody knows."""
        return None if self.file is None else os.fstat(self.file.fileno()).st_size

    def position(self) -> int:
        """How many of them were read."""
        return 0 if self.file is None else self.file.tell()


@contextlib.contextmanager
def open_source(path: Path | None) -> Iterator[Source]:
    """Open a file, or standard input; what is compressed with gzip or zstd is known by its first bytes."""
    if path is None and sys.stdin.isatty():
        raise typer.BadParameter("give events as arguments, or in a file with --file, or through a pipe")
    with _opened(path) as source:
        regular = source.seekable() and _is_regular(source)
        try:
            yield Source(_undone(source), source if regular else None)
        except (gzip.BadGzipFile, zlib.error, EOFError, zstandard.ZstdError) as error:
            raise InvalidRequest(f"what is to be pushed is compressed, and damaged: {error}") from error


def _undone(source: BinaryIO) -> BinaryIO:
    peek = getattr(source, "peek", None)
    head: bytes = b"" if peek is None else peek(4)[:4]
    if head.startswith(_GZIP):
        return cast(BinaryIO, gzip.GzipFile(fileobj=source))
    if head == _ZSTD:
        reader = zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=True, closefd=False)
        return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, reader)))
    return source


def _is_regular(source: BinaryIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(source.fileno()).st_mode)
    except OSError:
        return False


@contextlib.contextmanager
def _opened(path: Path | None) -> Iterator[BinaryIO]:
    if path is None or str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}") from error
    with file:
        yield file
