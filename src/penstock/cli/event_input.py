"""Pushes events from arguments, a file or a pipe, plain or compressed, into a queue."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
import typer
import zstandard

from penstock.cli.output import Output
from penstock.client.transport import Transport
from penstock.core import json
from penstock.core.errors import InvalidEvent, InvalidRequest, PenstockError, QueueFull
from penstock.core.formatting import counted
from penstock.core.wait_notice import WaitNotice
from penstock.log.write.encode.batch import Batch
from penstock.log.write.push_result import PushResult

_BATCH_BYTES = 2 << 20
_BATCH_EVENTS = 5_000
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, slots=True)
class PushTarget:
    """The queue to push to, and the fields that hold the key, id and time of each event."""

    queue: str
    key: str | None
    key_field: str | None
    id_field: str | None
    time_field: str | None

    def batch(self, text: bytes) -> Batch:
        """Return a batch of the NDJSON in ``text``."""
        return Batch(self.queue, text, self.key, self.key_field, self.id_field, self.time_field)

    def fingerprint(self) -> str:
        """Return the part of the idempotency keys that identifies these fields.

        The text is the same in every version, so that ``--once`` recognizes what an older version has pushed.
        """
        return (
            f"Shape(queue={self.queue!r}, key={self.key!r}, key_field={self.key_field!r}, "
            f"id_field={self.id_field!r}, time_field={self.time_field!r})"
        )


@dataclass(frozen=True, slots=True)
class LineBatch:
    """The non-empty lines of one push: their line numbers and their text."""

    numbers: list[int]
    texts: list[bytes]


class EventPusher:
    """Pushes events, retries while the queue is full, and counts the results."""

    def __init__(self, transport: Transport, fields: PushTarget, out: Output, wait: float) -> None:
        self._transport = transport
        self._fields = fields
        self._out = out
        self._wait = wait

    async def push_arguments(self, texts: list[str], event_id: str | None) -> dict[str, Any]:
        """Push the events of the arguments in one transaction."""
        values = [_parse_argument(text) for text in texts]
        if event_id is not None:
            batch = Batch(self._fields.queue, [{"data": msgspec.Raw(values[0]), "id": event_id}], self._fields.key)
        else:
            batch = self._fields.batch(b"\n".join(values))
        result = await self._push(batch)
        events = [
            {"partition": event.partition, "offset": event.offset, "id": event.id, "status": event.status}
            for event in result
        ]
        return {
            "queue": self._fields.queue,
            "accepted": result.accepted,
            "duplicates": result.duplicates,
            "events": events,
        }

    async def push_file(self, path: Path | None, *, once: bool = False) -> dict[str, Any]:
        """Push the lines of a file or pipe, batch by batch.

        With ``once``, each batch has an idempotency key derived from its first line number and its text. The queue
        then recognizes the batches that an interrupted run has pushed.
        """
        accepted = duplicates = 0
        with open_input(path) as file, self._progress(file) as advance:
            batches = read_lines(file.stream)
            while lines := await asyncio.to_thread(next, batches, None):
                text = b"\n".join(lines.texts)
                idempotency_key = self._idempotency_key(lines, text) if once else None
                try:
                    result = await self._push(self._fields.batch(text), idempotency_key)
                except PenstockError as error:
                    raise _add_line_number(error, lines, accepted + duplicates) from error
                if result.replayed:
                    duplicates += len(result)
                else:
                    accepted += result.accepted
                    duplicates += result.duplicates
                advance(file.position())
        return {"queue": self._fields.queue, "accepted": accepted, "duplicates": duplicates}

    def _idempotency_key(self, lines: LineBatch, text: bytes) -> str:
        digest = blake2b(f"{self._fields.fingerprint()} {lines.numbers[0]} ".encode() + text, digest_size=20)
        return f"file:{digest.hexdigest()}"

    async def _push(self, batch: Batch, idempotency_key: str | None = None) -> PushResult:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._wait
        notice = WaitNotice(self._out.warn)
        while True:
            try:
                return (await self._transport.push([batch], idempotency_key=idempotency_key))[0]
            except QueueFull as full:
                if loop.time() + full.retry_after > deadline:
                    raise
                notice.waits(full, full.retry_after)
                await asyncio.sleep(full.retry_after)

    @contextlib.contextmanager
    def _progress(self, file: InputFile) -> Iterator[Callable[[int], None]]:
        if self._out.quiet or self._out.json or not self._out.errors.is_terminal:
            yield lambda position: None
            return
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("Pushing"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._out.errors, transient=True) as progress:
            task = progress.add_task("", total=file.size)
            yield lambda position: progress.update(task, completed=position)


def read_lines(file: BinaryIO) -> Iterator[LineBatch]:
    """Yield the non-empty lines of a file or pipe in batches."""
    rest = b""
    line_number = 0
    # read1 returns what the pipe holds now, so that a slow producer's lines are pushed at once.
    read: Callable[[int], bytes] = getattr(file, "read1", file.read)
    while True:
        block = read(_BATCH_BYTES)
        whole, newline, tail = (rest + block).rpartition(b"\n")
        if not block:
            whole, tail = tail, b""
        elif not newline:
            rest = tail
            continue
        rest = tail
        numbers: list[int] = []
        texts: list[bytes] = []
        for line in whole.split(b"\n"):
            line_number += 1
            text = line.strip()
            if text:
                numbers.append(line_number)
                texts.append(text)
            if len(texts) >= _BATCH_EVENTS:
                yield LineBatch(numbers, texts)
                numbers, texts = [], []
        if texts:
            yield LineBatch(numbers, texts)
        if not block:
            return


def _parse_argument(text: str) -> bytes:
    """Return the JSON on one line, with its numbers as typed."""
    try:
        json.validate(text.encode())
    except (json.JSONProblem, UnicodeEncodeError) as problem:
        raise InvalidRequest(
            f"{text!r} is not JSON ({problem}): write a string as '\"text\"', with both kinds of quotes"
        ) from None
    return msgspec.json.format(text.encode(), indent=-1)


def _add_line_number(error: PenstockError, lines: LineBatch, pushed: int) -> PenstockError:
    """Return the error with the line number and the number of events pushed before it."""
    verb = "was" if pushed == 1 else "were"
    before = f"; {counted(pushed, 'event')} before it {verb} pushed" if pushed else "; nothing was pushed"
    if isinstance(error, InvalidEvent) and error.index < len(lines.numbers):
        return InvalidRequest(f"line {lines.numbers[error.index]}: {error.field}: {error.reason}{before}")
    if isinstance(error, QueueFull):
        error.args = (f"{error}{before}; --wait waits for room",)
    return error


@dataclass(frozen=True, slots=True)
class InputFile:
    """A decompressed stream, and the file on disk that it reads (None for a pipe)."""

    stream: BinaryIO
    file: BinaryIO | None

    @property
    def size(self) -> int | None:
        return None if self.file is None else os.fstat(self.file.fileno()).st_size

    def position(self) -> int:
        """Return how many bytes of the file on disk were read."""
        return 0 if self.file is None else self.file.tell()


@contextlib.contextmanager
def open_input(path: Path | None) -> Iterator[InputFile]:
    """Open a file or standard input. The first bytes tell whether gzip or zstd compressed it."""
    if (path is None or str(path) == "-") and sys.stdin.isatty():
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
