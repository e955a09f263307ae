"""Reading a request body: decompressed, with limits on its size, its duration and the memory of the process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from penstock.server.http.decompress import Decompressor
from penstock.server.http.errors import Problem
from penstock.server.http.memory_budget import BudgetReservation
from penstock.server.http.request import HttpRequest
from penstock.server.settings import ServerSettings

#: The largest body that is read into memory as a whole. Handlers of larger bodies stream them.
MAX_BODY_BYTES = 32 << 20
#: Limits for reading the rest of a refused body. Many clients read the response only after sending everything.
_DRAIN_BYTES = 1 << 20
_DRAIN_SECONDS = 1.0


class RequestBody:
    """The body of one request.

    A client has ``request_seconds`` to start sending, and must then keep up ``min_bytes_per_second`` on average.
    """

    def __init__(
        self,
        request: HttpRequest,
        encoding: str | None,
        settings: ServerSettings,
        reservation: BudgetReservation,
        limit: int,
    ) -> None:
        self._stream = request.stream()
        self._request = request
        self._decompressor = Decompressor(encoding)
        #: Decompressed data of the last network chunk that was not consumed yet.
        self._pending: Iterator[bytes] = iter(())
        self._reservation = reservation
        #: The largest decompressed size.
        self.limit = limit
        self._start_seconds = settings.request_seconds
        self._min_rate = settings.min_bytes_per_second
        self._begun = 0.0
        self._received = 0
        self._size = 0
        self._expects_continue = request.headers.get("expect", "").lower() == "100-continue"
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and encoding is None and int(announced) > limit:
            raise self._too_large()

    def reserve(self, size: int) -> None:
        """Reserve memory beside that of the body."""
        self._reservation.grow(size)

    async def read_all(self) -> bytes:
        text, _ = await self.read_prefix(self.limit)
        return text

    async def read_prefix(self, size: int) -> tuple[bytes, bool]:
        """Read the body up to about this size; return it and whether it is complete. Most bodies need only this."""
        parts: list[bytes] = []
        total = 0
        self._begun = asyncio.get_running_loop().time()
        async for received in self._stream if self._request.has_full_body else self._receive():
            if not received:
                continue
            self._received += len(received)
            self._pending = self._decompressor.feed(received)
            for part in self._pending:
                parts.append(self._account(part))
                total += len(part)
                if total > size:
                    return b"".join(parts), False
        self._decompressor.finish()
        return parts[0] if len(parts) == 1 else b"".join(parts), True

    async def read_rest(self) -> AsyncIterator[bytes]:
        """Yield the rest of the body as it arrives. Its memory stays reserved."""
        for part in self._pending:
            yield self._account(part)
        async for received in self._receive():
            self._received += len(received)
            for part in self._decompressor.feed(received):
                yield self._account(part)
        self._decompressor.finish()

    async def read_line_batches(self, prefix: bytes, size: int, max_line: int) -> AsyncIterator[bytes]:
        """Yield the prefix and the rest of the body in batches of whole lines of about this size.

        The memory of a batch is released when the next one is read.
        """
        cut = prefix.rfind(b"\n") + 1
        if cut:
            yield prefix[:cut]
            self._reservation.release(cut)
        waiting, waiting_bytes = [prefix[cut:]], len(prefix) - cut
        async for part in self.read_rest():
            cut = part.rfind(b"\n") + 1
            if not cut:
                waiting.append(part)
                waiting_bytes += len(part)
                if waiting_bytes > max_line + size:
                    raise Problem("too-large", f"a line is longer than {max_line:,} bytes", {"line_limit": max_line})
                continue
            if waiting_bytes + cut >= size:
                yield b"".join([*waiting, part[:cut]])
                self._reservation.release(waiting_bytes + cut)
                waiting, waiting_bytes = [part[cut:]], len(part) - cut
            else:
                waiting.append(part)
                waiting_bytes += len(part)
        if waiting_bytes:
            yield b"".join(waiting)

    async def drain(self) -> bool:
        """Read a little more of a refused body; return whether that was its end."""
        if self._expects_continue and not self._received:
            return False  # reading would send "100 Continue"
        left = _DRAIN_BYTES
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                async for received in self._stream:
                    left -= len(received)
                    if left < 0:
                        return False
        except TimeoutError:
            return False
        return True

    async def _receive(self) -> AsyncIterator[bytes]:
        """Yield the data that the client sends, or raise a problem if it sends too slowly."""
        while True:
            deadline = self._begun + self._start_seconds + self._received / self._min_rate
            try:
                async with asyncio.timeout_at(deadline):
                    received = await anext(self._stream, None)
            except TimeoutError:
                raise self._too_slow() from None
            if received is None:
                return
            yield received

    def _account(self, part: bytes) -> bytes:
        self._size += len(part)
        if self._size > self.limit:
            raise self._too_large()
        self._reservation.grow(len(part))
        return part

    def _too_slow(self) -> Problem:
        seconds = asyncio.get_running_loop().time() - self._begun
        return Problem(
            "request-timeout",
            f"the body arrives too slowly: {self._received:,} bytes in {seconds:.0f} s",
            headers={"Connection": "close"},
        )

    def _too_large(self) -> Problem:
        return Problem("too-large", f"the body is larger than {self.limit:,} bytes", {"limit": self.limit})
