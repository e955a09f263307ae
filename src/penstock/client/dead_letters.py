"""The dead letters of a queue: looking, sending back, throwing away."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.client.arguments import check_whole
from penstock.core.errors import InvalidRequest, NotFound
from penstock.log.dead_letters import REDRIVE_LIMIT, DeadLetter, Filter, Redrive

if TYPE_CHECKING:
    from penstock.client.session import Session

# Here, because the class has a method ``list``, which hides the type from its own signatures.
DeadLetters = list[DeadLetter]
DeadLetterIds = list[int]

_MOST = 100_000


@dataclass(frozen=True, slots=True)
class DeadLetterHandle:
    """The dead letters of one queue, of all its groups or of one.

    ::

        dead = q.queue("orders").dlq("billing")
        for letter in await dead.list(error="Timeout"):
            print(letter.id, letter.key, letter.error, letter.data)
        await dead.redrive(error="Timeout")

    Filters add up: ``key`` is the event's key, ``error`` a part of the error's text, ``since`` and ``until`` bound
    the time of the failure.
    """

    _session: Session = field(repr=False)
    queue: str
    """The queue's name."""
    group: str | None = None
    """The group whose dead letters these are; None: of all groups."""

    async def list(
        self,
        limit: int = 100,
        offset: int = 0,
        *,
        key: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> DeadLetters:
        """A page of dead letters, newest failure first."""
        check_whole("limit", limit, 1, _MOST)
        check_whole("offset", offset, 0, 2**62)
        which = self._filter(None, key, error, since, until)
        return await self._session.transport.dead_letters(which, limit=limit, offset=offset)

    async def get(self, id: int) -> DeadLetter:
        """One dead letter, with its traceback and what happened to it before."""
        check_whole("id", id, 0, 2**63 - 1)
        found = await self._session.transport.dead_letters(self._filter([id], None, None, None, None), limit=1)
        if not found:
            whose = f"queue {self.queue!r}" if self.group is None else f"group {self.group!r} of queue {self.queue!r}"
            raise NotFound(f"{whose} has no dead letter {id}; it may have been redriven or purged")
        return found[0]

    async def count(
        self,
        *,
        key: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> int:
        """How many there are."""
        return await self._session.transport.count_dead_letters(self._filter(None, key, error, since, until))

    async def redrive(
        self,
        ids: Iterable[int] | int | None = None,
        limit: int = REDRIVE_LIMIT,
        all: bool = False,
        *,
        key: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Redrive:
        """Send dead letters back to the group that failed on them, oldest first.

        At most ``limit`` of them, unless ``all`` is said or they are named by ``ids``.
        """
        check_whole("limit", limit, 1, _MOST)
        named = _read_ids(ids)
        which = self._filter(named, key, error, since, until)
        return await self._session.transport.redrive(which, limit=None if all or named is not None else limit)

    async def purge(
        self,
        ids: Iterable[int] | int | None = None,
        all: bool = False,
        *,
        key: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> int:
        """Delete dead letters for good: those named, those that match, or ``all``; answers how many."""
        named = _read_ids(ids)
        if named is None and not all and (key, error, since, until) == (None, None, None, None):
            raise InvalidRequest("purge would delete every dead letter: name some, filter them, or say all=True")
        return await self._session.transport.purge(self._filter(named, key, error, since, until))

    def _filter(
        self,
        ids: DeadLetterIds | None,
        key: str | None,
        error: str | None,
        since: datetime | None,
        until: datetime | None,
    ) -> Filter:
        return Filter(ids, self.queue, self.group, key, error, since, until)


def _read_ids(given: object) -> DeadLetterIds | None:
    if given is None:
        return None
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        return [check_whole("id", given, 0, 2**63 - 1)]
    return [check_whole("id", id, 0, 2**63 - 1) for id in given]
