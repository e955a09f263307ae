"""What a source is: something to read on from a position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from penstock.log.write.result import Rejected

#: Where a source was left: anything that JSON can hold. None: it was never read.
Position: TypeAlias = dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Read:
    """What was read: events as JSON, a line each, and where to go on after them."""

    lines: Sequence[bytes]
    position: Position
    #: Nothing will come any more.
    ended: bool = False
    #: What was found there and can be no event, to become dead letters.
    rejected: Sequence[Rejected] = ()


class Source:
    """Somewhere events come from. Subclass it, and write ``read``.

    A feed calls ``open`` once, then ``read`` again and again, each time from the position that it answered the last
    time, or that an earlier process had come to; then ``close``, whatever happened. The events and the position are
    stored in one transaction, so each event is in the queue once, if reading from a position gives the same ones again.
    """

    #: What it is called: its position is kept under this name.
    name: str = "source"
    kind: ClassVar[str] = "source"

    async def open(self) -> None:
        """Get ready."""

    async def read(self, position: Position, most: int) -> Read:
        """Up to so many events after the position; none if there are none yet."""
        raise NotImplementedError

    async def wait(self, seconds: float) -> None:
        """Wait until there may be more, but not longer."""
        raise NotImplementedError

    async def close(self) -> None:
        """Let go of everything."""
