"""The result of a push."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import msgspec


@dataclass(frozen=True, slots=True)
class Pushed:
    """Where one event was stored. ``duplicate`` means that it had been stored there before."""

    index: int
    queue: str
    partition: str
    partition_id: int
    offset: int
    id: str | None
    duplicate: bool

    @property
    def status(self) -> str:
        """``queued`` or ``duplicate``."""
        return "duplicate" if self.duplicate else "queued"


@dataclass(frozen=True, slots=True)
class RejectedInput:
    """Input that is not a valid event: its position in the push, the invalid field, the reason and its text."""

    index: int
    field: str
    reason: str
    raw: bytes = b""
    #: The number of its line, from 1, if it was pushed as NDJSON. Empty lines count.
    line: int | None = None


class AppendedEvents(msgspec.Struct, frozen=True, gc=False):
    """Where the events of one piece were stored."""

    queue: str
    partition: str
    partition_id: int
    #: The positions of the events in the push.
    indices: Sequence[int]
    offsets: Sequence[int]
    ids: Sequence[str | None] | None
    #: Indices into ``offsets`` of the events that had been stored before.
    duplicates: frozenset[int] = frozenset()

    def plain(self) -> AppendedEvents:
        """Return a copy with lists, which can be encoded."""
        ids = None if self.ids is None else list(self.ids)
        return msgspec.structs.replace(self, indices=list(self.indices), offsets=list(self.offsets), ids=ids)


class PushResult(Sequence[Pushed]):
    """The result of a push: how many events were accepted, and one :class:`Pushed` for each event, in order."""

    __slots__ = ("_placed", "_pushed", "accepted", "duplicates", "rejected", "replayed", "shed")

    def __init__(
        self,
        placed: Sequence[AppendedEvents],
        *,
        replayed: bool = False,
        shed: int = 0,
        rejected: Sequence[RejectedInput] = (),
    ) -> None:
        self._placed = placed
        self._pushed: list[Pushed] | None = None
        events = duplicates = 0
        for part in placed:
            events += len(part.indices)
            duplicates += len(part.duplicates)
        self.duplicates = duplicates
        self.accepted = events - duplicates
        #: True if the idempotency key was used before, and this is the result of the first push.
        self.replayed = replayed
        #: The number of events that were dropped because the queue was full (``overflow`` is ``shed``).
        self.shed = shed
        #: Invalid input that went to the dead letters (``partial``).
        self.rejected = rejected

    def __len__(self) -> int:
        return self.accepted + self.duplicates

    @overload
    def __getitem__(self, index: int) -> Pushed: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Pushed]: ...
    def __getitem__(self, index: int | slice) -> Pushed | Sequence[Pushed]:
        return self._events()[index]

    def __iter__(self) -> Iterator[Pushed]:
        return iter(self._events())

    def __repr__(self) -> str:
        return f"PushResult(accepted={self.accepted}, duplicates={self.duplicates})"

    def placed(self) -> Sequence[AppendedEvents]:
        """Return the result piece by piece, as it is stored with an idempotency key."""
        return self._placed

    def _events(self) -> list[Pushed]:
        if self._pushed is None:
            pushed = [
                Pushed(
                    index,
                    part.queue,
                    part.partition,
                    part.partition_id,
                    part.offsets[i],
                    None if part.ids is None else part.ids[i],
                    i in part.duplicates,
                )
                for part in self._placed
                for i, index in enumerate(part.indices)
            ]
            pushed.sort(key=lambda event: event.index)
            self._pushed = pushed
        return self._pushed
