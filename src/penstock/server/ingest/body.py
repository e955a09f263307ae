"""Reading a body: within its time, within its size, within what the process can hold, and undone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from penstock.server.http.errors import Problem
from penstock.server.http.request import Incoming
from penstock.server.ingest.decompress import Plain, inflater
from penstock.server.ingest.memory_budget import Hold
from penstock.server.settings import ServerSettings

#: Of a body that is refused, this much is read on before the answer: many clients listen only when they have sent.
_READ_ON = 1 << 20
_READ_ON_SECONDS = 1.0


class Body:
    """The body of one request."""

    def __init__(
        self, request: Incoming, encoding: str | None, settings: ServerSettings, hold: Hold, limit: int
    ) -> None:
        self._stream = request.stream()
        self._request = request
        self._inflater = inflater(encoding)
        # What was sent may be much more than what was taken of it so far.
        self._fed: Iterator[bytes] = iter(())
        self._hold = hold
        #: How large it may be, undone.
        self.limit = limit
        #: A sender has this long to begin, and then has to keep up a rate, however slow.
        self._seconds = settings.request_seconds
        self._rate = settings.min_bytes_per_second
        self._begun = 0.0
        self._sent = 0
        self.size = 0
        self._asks_first = request.headers.get("expect", "").lower() == "100-continue"
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and isinstance(self._inflater, Plain) and int(announced) > limit:
            raise self._too_large()

    def hold(self, size: int) -> None:
        """Hold more than the body itself."""
        self._hold.grow(size)

    async def whole(self) -> bytes:
        """All of it, in memory."""
        text, _ = await self.begin(self.limit)
        return text

    async def begin(self, size: int) -> tuple[bytes, bool]:
        """The body up to about this size, and whether that is all of it. Most bodies are read here, and only here."""
        parts: list[bytes] = []
        held = 0
        self._begun = asyncio.get_running_loop().time()
        async for sent in self._stream if self._request.is_whole else self._in_time():
            if not sent:
                continue
            self._sent += len(sent)
            self._fed = self._inflater.feed(sent)
            for part in self._fed:
                parts.append(self._counted(part))
                held += len(part)
                if held > size:
                    return b"".join(parts), False
        self._inflater.finish()
        return parts[0] if len(parts) == 1 else b"".join(parts), True

    async def slices(self, begun: bytes, size: int, longest: int) -> AsyncIterator[bytes]:
        """The body in runs of whole lines of about this size, after what was read; a line may be so long at most."""
        cut = begun.rfind(b"\n") + 1
        if cut:
            yield begun[:cut]
            self._hold.release(cut)
        waiting, held = [begun[cut:]], len(begun) - cut
        async for part in self.parts():
            cut = part.rfind(b"\n") + 1
            if not cut:
                waiting.append(part)
                held += len(part)
                if held > longest + size:
                    raise Problem("too-large", f"a line is longer than {longest:,} bytes", {"line_limit": longest})
                continue
            if held + cut >= size:
                yield b"".join([*waiting, part[:cut]])
                self._hold.release(held + cut)
                waiting, held = [part[cut:]], len(part) - cut
            else:
                waiting.append(part)
                held += len(part)
        if held:
            yield b"".join(waiting)

    async def parts(self) -> AsyncIterator[bytes]:
        """What follows, as it arrives, undone; it is held until it is released."""
        for part in self._fed:
            yield self._counted(part)
        async for sent in self._in_time():
            self._sent += len(sent)
            for part in self._inflater.feed(sent):
                yield self._counted(part)
        self._inflater.finish()

    async def _in_time(self) -> AsyncIterator[bytes]:
        """What is sent, if it does not come too slowly."""
        while True:
            try:
                async with asyncio.timeout_at(self._deadline()):
                    sent = await anext(self._stream, None)
            except TimeoutError:
                raise self._too_slow() from None
            if sent is None:
                return
            yield sent

    def _counted(self, part: bytes) -> bytes:
        self.size += len(part)
        if self.size > self.limit:
            raise self._too_large()
        self._hold.grow(len(part))
        return part

    def _deadline(self) -> float:
        return self._begun + self._seconds + self._sent / self._rate

    def _too_slow(self) -> Problem:
        took = asyncio.get_running_loop().time() - self._begun
        return Problem(
            "request-timeout",
            f"the body comes too slowly: {self._sent:,} bytes in {took:.0f} s",
            headers={"Connection": "close"},
        )

    async def read_on(self) -> bool:
        """Read a little more of a body that nobody wants; whether that was its end."""
        if self._asks_first and not self._sent:
            return False  # reading would tell it to go on
        left = _READ_ON
        try:
            async with asyncio.timeout(_READ_ON_SECONDS):
                async for sent in self._stream:
                    left -= len(sent)
                    if left < 0:
                        return False
        except TimeoutError:
            return False
        return True

    def _too_large(self) -> Problem:
        return Problem("too-large", f"the body is larger than {self.limit:,} bytes", {"limit": self.limit})
