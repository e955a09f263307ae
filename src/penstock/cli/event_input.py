"""Events from the command line, a file or a pipe into a queue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from penstock.cli.input_file import Source, open_source
from penstock.core import json
from penstock.core.errors import InvalidEvent, InvalidRequest, PenstockError, QueueFull
from penstock.core.formatting import number
from penstock.log.write.batch import Batch

if TYPE_CHECKING:
    from penstock.cli.output import Output
    from penstock.client.transport import Transport
    from penstock.log.write.result import PushResult

_BATCH_BYTES = 2 << 20
_BATCH_EVENTS = 5_000


@dataclass(frozen=True, slots=True)
class Shape:
    """Where events go, and where in them their key, id and time are."""

    queue: str
    key: str | None
    key_field: str | None
    id_field: str | None
    time_field: str | None

    def batch(self, text: bytes) -> Batch:
        """NDJSON as a batch."""
        return Batch(self.queue, text, self.key, self.key_field, self.id_field, self.time_field)


@dataclass(frozen=True, slots=True)
class Lines:
    """Some lines of a file: the number of each, and its text."""

    numbers: list[int]
    texts: list[bytes]


class Pusher:
    """Pushes, waits for room, and counts."""

    def __init__(self, transport: Transport, shape: Shape, out: Output, wait: float) -> None:
        self._transport = transport
        self._shape = shape
        self._out = out
        self._wait = wait

    async def push_arguments(self, texts: list[str], event_id: str | None) -> dict[str, Any]:
        """Push events that were given as arguments, all or none."""
        values = [_argument(text) for text in texts]
        if event_id is not None:
            batch = Batch(self._shape.queue, [{"data": msgspec.Raw(values[0]), "id": event_id}], self._shape.key)
        else:
            batch = self._shape.batch(b"\n".join(values))
        result = await self._push(batch)
        events = [
            {"partition": each.partition, "offset": each.offset, "id": each.id, "status": each.status}
            for each in result
        ]
        return {
            "queue": self._shape.queue,
            "accepted": result.accepted,
            "duplicates": result.duplicates,
            "events": events,
        }

    async def push_file(self, path: Path | None, *, once: bool = False) -> dict[str, Any]:
        """Push what is in a file, or comes through a pipe, as it comes.

        With ``once``, each part has a key made of its place and its text, so that what was pushed before, by a run
        that was interrupted, is known again.
        """
        accepted = duplicates = 0
        with open_source(path) as source, self._progress(source) as advance:
            lines = read_lines(source.stream)
            while some := await asyncio.to_thread(next, lines, None):
                text = b"\n".join(some.texts)
                try:
                    result = await self._push(self._shape.batch(text), self._key(some, text) if once else None)
                except PenstockError as error:
                    raise _located(error, some, accepted + duplicates) from error
                if result.replayed:
                    duplicates += len(result)
                else:
                    accepted += result.accepted
                    duplicates += result.duplicates
                advance(source.position())
        return {"queue": self._shape.queue, "accepted": accepted, "duplicates": duplicates}

    def _key(self, lines: Lines, text: bytes) -> str:
        digest = blake2b(f"{self._shape!r} {lines.numbers[0]} ".encode() + text, digest_size=20)
        return f"file:{digest.hexdigest()}"

    async def _push(self, batch: Batch, key: str | None = None) -> PushResult:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._wait
        while True:
            try:
                return (await self._transport.push([batch], idempotency_key=key))[0]
            except QueueFull as full:
                if loop.time() + full.retry_after > deadline:
                    raise
                await asyncio.sleep(full.retry_after)

    @contextlib.contextmanager
    def _progress(self, source: Source) -> Iterator[Callable[[int], None]]:
        if self._out.quiet or self._out.json or not self._out.errors.is_terminal:
            yield lambda position: None
            return
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("Pushing"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._out.errors, transient=True) as progress:
            task = progress.add_task("", total=source.size)
            yield lambda position: progress.update(task, completed=position)


def read_lines(source: BinaryIO) -> Iterator[Lines]:
    """Read lines as they come, so many at a time as are there and fit a batch; empty ones are left out."""
    rest = b""
    number = 0
    # As much as is there, without waiting for more: what comes through a pipe is not held up.
    read: Callable[[int], bytes] = getattr(source, "read1", source.read)
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
            number += 1
            text = line.strip()
            if text:
                numbers.append(number)
                texts.append(text)
            if len(texts) >= _BATCH_EVENTS:
                yield Lines(numbers, texts)
                numbers, texts = [], []
        if texts:
            yield Lines(numbers, texts)
        if not block:
            return


def _argument(text: str) -> bytes:
    """The JSON on one line, its numbers as they were typed."""
    try:
        json.validate(text.encode())
    except (json.JSONProblem, UnicodeEncodeError) as problem:
        raise InvalidRequest(
            f"{text!r} is not JSON ({problem}): write text as '\"text\"' and quote the whole for the shell"
        ) from None
    return msgspec.json.format(text.encode(), indent=-1)


def _located(error: PenstockError, lines: Lines, pushed: int) -> PenstockError:
    """The same error, with the line of the file, and with what was pushed before it."""
    before = f"; {number(pushed)} events before it were pushed" if pushed else "; nothing was pushed"
    if isinstance(error, InvalidEvent) and error.index < len(lines.numbers):
        return InvalidRequest(f"line {lines.numbers[error.index]}: {error.field}: {error.reason}{before}")
    if isinstance(error, QueueFull):
        error.args = (f"{error}{before}; --wait waits for room",)
    return error
