"""The input of ``penstock push``: a file or a pipe, plain or compressed."""

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

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, slots=True)
class InputFile:
    """A decompressed stream, and the file on disk that it reads (None for a pipe)."""

    stream: BinaryIO
    file: BinaryIO | None

    @property
    def size(self) -> int | None:
        """The size of the file on disk; None for a pipe."""
        return None if self.file is None else os.fstat(self.file.fileno()).st_size

    def position(self) -> int:
        """Return how many bytes of the file on disk were read."""
        return 0 if self.file is None else self.file.tell()


@contextlib.contextmanager
def open_input(path: Path | None) -> Iterator[InputFile]:
    """Open a file or standard input. The first bytes tell whether gzip or zstd compressed it."""
    if path is None and sys.stdin.isatty():
        raise typer.BadParameter("give events as arguments, or in a file with --file, or through a pipe")
    with _open_binary(path) as file:
        is_on_disk = file.seekable() and _is_regular(file)
        try:
            yield InputFile(_decompress(file), file if is_on_disk else None)
        except (gzip.BadGzipFile, zlib.error, EOFError, zstandard.ZstdError) as error:
            raise InvalidRequest(f"the compressed input is damaged: {error}") from error


def _decompress(file: BinaryIO) -> BinaryIO:
    peek = getattr(file, "peek", None)
    head: bytes = b"" if peek is None else peek(4)[:4]
    if head.startswith(_GZIP_MAGIC):
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if head == _ZSTD_MAGIC:
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=False)
        return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, reader)))
    return file


def _is_regular(file: BinaryIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except OSError:
        return False


@contextlib.contextmanager
def _open_binary(path: Path | None) -> Iterator[BinaryIO]:
    if path is None or str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}") from error
    with file:
        yield file
