"""What a push answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import msgspec


@dataclass(frozen=True, slots=True)
class Pushed:
    """Where one event went. ``duplicate`` means that it was there already, at this place."""

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
class Rejected:
    """What was pushed and could not be an event: its place in the push, what part of it is wrong and how, its text."""

    index: int
    field: str
    reason: str
    raw: bytes = b""


class Placed(msgspec.Struct, frozen=True, gc=False):
    """Where the events of one piece of a push went."""

    queue: str
    partition: str
    partition_id: int
    indices: Sequence[int]
    offsets: Sequence[int]
    ids: Sequence[str | None] | None
    duplicates: frozenset[int] = frozenset()

    def plain(self) -> Placed:
        """The same in lists, to be stored."""
        ids = None if self.ids is None else list(self.ids)
        return msgspec.structs.replace(self, indices=list(self.indices), offsets=list(self.offsets), ids=ids)


class PushResult(Sequence[Pushed]):
    """The outcome of a push: how many events were accepted, and one :class:`Pushed` for each, in order."""

    __slots__ = ("_each", "_placed", "accepted", "duplicates", "rejected", "replayed", "shed")

    def __init__(
        self, placed: Sequence[Placed], *, replayed: bool = False, shed: int = 0, rejected: Sequence[Rejected] = ()
    ) -> None:
        self._placed = placed
        self._each: list[Pushed] | None = None
        events = duplicates = 0
        for part in placed:
            events += len(part.indices)
            duplicates += len(part.duplicates)
        self.duplicates = duplicates
        self.accepted = events - duplicates
        #: True when an idempotency key was seen before and this is the answer of that time.
        self.replayed = replayed
        #: Events that were dropped, and counted, because the queue was full and sheds (``overflow``).
        self.shed = shed
        #: What could not be events and went to the dead letters (``partial``).
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

    def placed(self) -> Sequence[Placed]:
        """The same, piece by piece, as it is stored with an idempotency key."""
        return self._placed

    def _events(self) -> list[Pushed]:
        if self._each is None:
            each = [
                Pushed(
                    index,
                    p.queue,
                    p.partition,
                    p.partition_id,
                    p.offsets[i],
                    None if p.ids is None else p.ids[i],
                    i in p.duplicates,
                )
                for p in self._placed
                for i, index in enumerate(p.indices)
            ]
            each.sort(key=lambda pushed: pushed.index)
            self._each = each
        return self._each
