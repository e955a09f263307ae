"""One reader of a live stream: what is ready for it, within bounds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec

#: So much waits for a reader at the most; one that is slower begins anew.
_MOST_FRAMES = 100
_MOST_BYTES = 4 << 20


@dataclass(frozen=True)
class Frame:
    """A message: made once, whoever it is for."""

    event: str
    data: bytes
    #: Where the stream can be taken up again after it; "" if it cannot.
    id: str = ""
    #: The offsets that it goes on from, by partition, where it tells events; who misses it begins there again.
    since: Mapping[int, int] | None = None

    @cached_property
    def sse(self) -> bytes:
        """As a Server-Sent Event. A line break in JSON is between two parts of it, and a space does as well."""
        id_line = f"id: {self.id}\n" if self.id else ""
        line = self.data.replace(b"\n", b" ").replace(b"\r", b" ")
        return f"event: {self.event}\n{id_line}data: ".encode() + line + b"\n\n"

    @cached_property
    def text(self) -> str:
        """As a message of a WebSocket."""
        head = msgspec.json.encode({"event": self.event, "id": self.id})[:-1]
        return (head + b',"data":' + self.data + b"}").decode()


class Subscriber:
    """Holds what a reader has not taken yet.

    The hub offers frames, and never waits. When too much has gathered, all of it is dropped, and as soon as the
    reader has taken what it had in hand, it is given a new beginning, which can say what it has missed.
    """

    def __init__(self, rejoin: Callable[[Subscriber], None], overrun: Callable[[], None]) -> None:
        self._rejoin = rejoin
        self._note_overrun = overrun
        self._frames: deque[Frame] = deque()
        self._size = 0
        self._ready = asyncio.Event()
        self._is_behind = False
        self._is_over = False
        #: Where what was dropped last began.
        self.missed_since: Mapping[int, int] | None = None

    def offer(self, frame: Frame) -> None:
        """Give a frame to the reader, or note that it is too slow."""
        if self._is_over or self._is_behind:
            return
        if self._frames and (len(self._frames) >= _MOST_FRAMES or self._size + len(frame.data) > _MOST_BYTES):
            self.missed_since = self._frames[0].since
            self._frames.clear()
            self._size = 0
            self._is_behind = True
            self._note_overrun()
        else:
            self._frames.append(frame)
            self._size += len(frame.data)
        self._ready.set()

    def end(self) -> None:
        """There will be nothing more; what waits is still taken."""
        self._is_over = True
        self._ready.set()

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to take, now or later."""
        return self._is_over and not self._frames

    async def next(self, patience: float) -> Frame | None:
        """The next frame; None, if there is none within that time or never will be."""
        if not self._frames and self._is_behind and not self._is_over:
            self._is_behind = False
            self._rejoin(self)
        if not self._frames and not self._is_over:
            self._ready.clear()
            try:
                async with asyncio.timeout(patience):
                    await self._ready.wait()
            except TimeoutError:
                return None
        if not self._frames:
            return None
        frame = self._frames.popleft()
        self._size -= len(frame.data)
        return frame
