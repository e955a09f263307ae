"""The handle of a queue's dead letters: list, count, redrive and purge."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, TypedDict, Unpack

from penstock.core.errors import InvalidRequest, NotFound
from penstock.core.option_checks import check_integer
from penstock.log.dead_letters.models import DeadLetter, DeadLetterFilter, Redrive
from penstock.log.dead_letters.redrive import REDRIVE_LIMIT

if TYPE_CHECKING:
    from penstock.client.session import ClientSession

# Aliases, because the method ``list`` of the class hides the type in its signatures.
DeadLetters = list[DeadLetter]
DeadLetterIds = list[int]

_MAX_COUNT = 100_000
_MAX_ID = 2**63 - 1


class DeadLetterConditions(TypedDict, total=False):
    """Filters of dead letters, as :class:`DeadLetterHandle` describes them."""

    key: str | None
    error: str | None
    since: datetime | None
    until: datetime | None


@dataclass(frozen=True, slots=True)
class DeadLetterHandle:
    """The dead letters of a queue, of all its groups or of one.

    ::

        dead = q.queue("orders").dlq("billing")
        for letter in await dead.list(error="Timeout"):
            print(letter.id, letter.key, letter.error, letter.data)
        await dead.redrive(error="Timeout")

    A dead letter must match all filters: ``key`` is the event's key, ``error`` a part of the error's text, ``since``
    and ``until`` bound the time of the failure.
    """

    _session: ClientSession = field(repr=False)
    queue: str
    """The queue's name."""
    group: str | None = None
    """The group whose dead letters these are; None for all groups."""

    async def list(self, limit: int = 100, offset: int = 0, **conditions: Unpack[DeadLetterConditions]) -> DeadLetters:
        """Return a page of dead letters, newest failure first."""
        check_integer("limit", limit, 1, _MAX_COUNT)
        check_integer("offset", offset, 0, 2**62)
        selected = self._filter(**conditions)
        return await self._session.transport.dead_letters(selected, limit=limit, offset=offset)

    async def get(self, id: int) -> DeadLetter:
        """Return one dead letter, with its traceback and its history."""
        check_integer("id", id, 0, _MAX_ID)
        letters = await self._session.transport.dead_letters(self._filter([id]), limit=1)
        if not letters:
            owner = f"queue {self.queue!r}" if self.group is None else f"group {self.group!r} of queue {self.queue!r}"
            raise NotFound(f"{owner} has no dead letter {id}; it may have been redriven or purged")
        return letters[0]

    async def count(self, **conditions: Unpack[DeadLetterConditions]) -> int:
        """Return how many dead letters match."""
        return await self._session.transport.count_dead_letters(self._filter(**conditions))

    async def redrive(
        self,
        ids: Iterable[int] | int | None = None,
        limit: int = REDRIVE_LIMIT,
        all: bool = False,
        **conditions: Unpack[DeadLetterConditions],
    ) -> Redrive:
        """Send dead letters back to the group that failed on them, oldest first.

        ``limit`` applies unless ``all`` is True or ``ids`` names the dead letters.
        """
        check_integer("limit", limit, 1, _MAX_COUNT)
        selected = self._filter(_read_ids(ids), **conditions)
        return await self._session.transport.redrive(selected, limit=None if all or selected.ids is not None else limit)

    async def purge(
        self, ids: Iterable[int] | int | None = None, all: bool = False, **conditions: Unpack[DeadLetterConditions]
    ) -> int:
        """Delete dead letters permanently, by id, by filter, or ``all``; return how many."""
        selected = self._filter(_read_ids(ids), **conditions)
        if not all and selected == self._filter():
            raise InvalidRequest("purge would delete every dead letter: give ids or a filter, or all=True")
        return await self._session.transport.purge(selected)

    def _filter(
        self,
        ids: DeadLetterIds | None = None,
        key: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> DeadLetterFilter:
        return DeadLetterFilter(ids, self.queue, self.group, key, error, since, until)


def _read_ids(given: object) -> DeadLetterIds | None:
    if given is None:
        return None
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        return [check_integer("id", given, 0, _MAX_ID)]
    return [check_integer("id", id, 0, _MAX_ID) for id in given]
