"""The handle of a queue's dead letters: list, count, edit, redrive and purge. Mappings make their new data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias, TypedDict, Unpack

from penstock.client.client_session import ClientSession
from penstock.core import json
from penstock.core.errors import InvalidRequest, NotFound, short_repr
from penstock.core.option_checks import check_integer
from penstock.log.dead_letters.dead_letter import DeadLetter, DeadLetterEdit, DeadLetterFilter, Edit, Redrive
from penstock.log.dead_letters.redrive import REDRIVE_LIMIT

# Aliases, because the method ``list`` of the class hides the type in its signatures.
DeadLetters = list[DeadLetter]
DeadLetterIds = list[int]
DeadLetterEdits = list[DeadLetterEdit]
#: A select list such as ``*, cast(price AS decimal) AS price``, or a function that takes and returns the data.
DeadLetterMapping: TypeAlias = str | Callable[[Any], Any]

_MAX_COUNT = 100_000
_MAX_PREVIEW = 1_000
_MAX_ID = 2**63 - 1


class DeadLetterArguments(TypedDict, total=False):
    """Filters of dead letters, as :class:`DeadLetterHandle` describes them."""

    key: str | None
    error: str | None
    since: datetime | None
    until: datetime | None
    partition: str | None
    kind: str | None
    stage: str | None


@dataclass(frozen=True, slots=True)
class DeadLetterHandle:
    """The dead letters of a queue, of all its groups or of one.

    ::

        dead = q.queue("orders").dlq("billing")
        for letter in await dead.list(error="Timeout"):
            print(letter.id, letter.key, letter.error, letter.data)
        await dead.redrive(error="Timeout")

    A dead letter must match all filters: ``key`` is the event's key, ``error`` a part of the error's text, ``since``
    and ``until`` bound the time of the failure, ``partition`` is the name of a partition, ``stage`` the stage in which
    the event failed, and ``kind`` the error's first line with ``#`` in place of numbers and ids, as the console shows
    it.

    ``preview`` and ``redrive`` take a ``mapping`` that makes the new data: a select list in SQL, or a function of the
    data::

        dead.preview("* EXCEPT (prise), cast(prise AS decimal) AS price")
        dead.redrive(mapping=lambda order: {**order, "price": float(order["prise"])})
    """

    _session: ClientSession = field(repr=False)
    queue: str
    """The queue's name."""
    group: str | None = None
    """The group whose dead letters these are; None for all groups."""

    async def list(self, limit: int = 100, offset: int = 0, **conditions: Unpack[DeadLetterArguments]) -> DeadLetters:
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

    async def count(self, **conditions: Unpack[DeadLetterArguments]) -> int:
        """Return how many dead letters match."""
        return await self._session.transport.count_dead_letters(self._filter(**conditions))

    async def redrive(
        self,
        ids: Iterable[int] | int | None = None,
        limit: int = REDRIVE_LIMIT,
        all: bool = False,
        mapping: DeadLetterMapping | None = None,
        **conditions: Unpack[DeadLetterArguments],
    ) -> Redrive:
        """Send dead letters back to the group that failed on them, oldest first, with the data that a mapping makes.

        ``limit`` applies unless ``all`` is True or ``ids`` names the dead letters. A dead letter for which the mapping
        fails, or a function returns None, stays and is counted as failed. Input that a push rejected becomes an event
        for all groups, which needs a mapping.
        """
        check_integer("limit", limit, 1, _MAX_COUNT)
        selected = self._filter(_read_ids(ids), **conditions)
        most = None if all or selected.ids is not None else limit
        if mapping is None:
            return await self._session.transport.redrive(selected, limit=most)
        return await self._session.transport.redrive_mapped(selected, mapping, limit=most)

    async def preview(
        self,
        mapping: DeadLetterMapping,
        ids: Iterable[int] | int | None = None,
        limit: int = 20,
        **conditions: Unpack[DeadLetterArguments],
    ) -> DeadLetterEdits:
        """Return the data of the oldest dead letters before and after a mapping. Nothing is changed or sent."""
        check_integer("limit", limit, 1, _MAX_PREVIEW)
        selected = self._filter(_read_ids(ids), **conditions)
        return await self._session.transport.preview_mapping(selected, mapping, limit=limit)

    async def purge(
        self, ids: Iterable[int] | int | None = None, all: bool = False, **conditions: Unpack[DeadLetterArguments]
    ) -> int:
        """Delete dead letters permanently, by id, by filter, or ``all``; return how many."""
        selected = self._filter(_read_ids(ids), **conditions)
        if not all and selected == self._filter():
            raise InvalidRequest("purge would delete every dead letter: give ids or a filter, or all=True")
        return await self._session.transport.purge(selected)

    def _filter(self, ids: DeadLetterIds | None = None, **conditions: Unpack[DeadLetterArguments]) -> DeadLetterFilter:
        return DeadLetterFilter(ids, self.queue, self.group, **conditions)


def _read_ids(given: object) -> DeadLetterIds | None:
    if given is None:
        return None
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        return [check_integer("id", given, 0, _MAX_ID)]
    return [check_integer("id", id, 0, _MAX_ID) for id in given]


def edit_function(mapping: DeadLetterMapping) -> Edit:
    """Return the function that edits a dead letter with a mapping. Raises InvalidRequest if it is no mapping."""
    if isinstance(mapping, str):
        from penstock.stream.sql.json_mapping import compile_mapping

        return compile_mapping(mapping)
    if not callable(mapping):
        raise InvalidRequest(
            f"a mapping is a select list in SQL or a function that returns the new data, not {short_repr(mapping)}"
        )
    return partial(call_mapping, mapping)


def call_mapping(function: Callable[[Any], Any], letter: DeadLetter) -> bytes:
    """Return the data that a function makes of a dead letter, or raise InvalidRequest."""
    try:
        data = function(letter.data)
    except Exception as error:
        raise InvalidRequest(f"the mapping raised {type(error).__name__}: {error}") from error
    if data is None:
        raise InvalidRequest("the mapping returned None, so the dead letter stays as it is")
    try:
        return json.encode(data)
    except json.JSONProblem as problem:
        raise InvalidRequest(f"the data that the mapping returned {problem}") from None
