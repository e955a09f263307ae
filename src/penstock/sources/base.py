"""``Source``, the base class of all sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from penstock.log.write.push_result import RejectedInput

#: How far a source has been read: any JSON object. None before the first read.
Position: TypeAlias = dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The result of a read: events as JSON, and the position after them."""

    lines: Sequence[bytes]
    position: Position
    #: Whether the source has no more events.
    ended: bool = False
    #: Input that is not an event; it becomes dead letters.
    rejected: Sequence[RejectedInput] = ()


class Source:
    """An origin of events. Subclass it and implement ``read`` and ``wait``.

    The runner calls ``open`` once, then ``read`` repeatedly, each time with the last position, then ``close``, also
    after errors. The first position is the last one of an earlier process. Events and position are stored in one
    transaction. So each event is in the queue once, if a read from the same position returns the same events.
    """

    #: The name of the source. Its position is stored under this name.
    name: str = "source"
    kind: ClassVar[str] = "source"

    async def open(self) -> None:
        """Prepare for reads."""

    async def read(self, position: Position, limit: int) -> ReadResult:
        """Return up to ``limit`` events after the position; none if there are none yet."""
        raise NotImplementedError

    async def wait(self, seconds: float) -> None:
        """Wait until there may be more events, at most for ``seconds``."""
        raise NotImplementedError

    async def close(self) -> None:
        """Release all resources."""
