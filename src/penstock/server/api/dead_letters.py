"""Dead letters over HTTP: looking, sending back, throwing away."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from penstock.core.errors import InvalidRequest, NotFound
from penstock.log.dead_letters import Filter, Redrive
from penstock.log.read.pop import FIRST_BYTES
from penstock.protocol import messages
from penstock.server.api.events import MOST_BYTES
from penstock.server.http.endpoint import Call, Endpoint, Role
from penstock.server.http.errors import Problem

_READ = frozenset({Role.READ, Role.CONSUME})
_ADMIN = frozenset({Role.ADMIN})

_TAG = "Dead letters"
_PROBLEMS = ("not-found", "invalid-name")


class WhichQuery(Struct, frozen=True):
    """Which dead letters: all conditions that are given must hold; ``ids`` are separated by commas."""

    ids: str | None = None
    queue: str | None = None
    group: str | None = None
    key: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def filter(self) -> Filter:
        """The filter, checked."""
        return Filter(_read_ids(self.ids), self.queue, self.group, self.key, self.error, self.since, self.until)


class PageQuery(WhichQuery, frozen=True):
    """The same, and a page of them."""

    limit: Annotated[int, Meta(ge=1, le=messages.MOST_EVENTS)] = 100
    offset: messages.Number = 0


class DeadLetterId(Struct, frozen=True):
    """The number of a dead letter, from the path."""

    id: int


async def page(call: Call) -> messages.DeadLetters:
    """Dead letters that match, newest failure first."""
    which = call.query.filter()
    await _permit(call, which)
    asked: PageQuery = call.query
    most = await call.room(MOST_BYTES)
    found, more = await call.services.log.part_of_dead_letters(which, asked.limit, asked.offset, most)
    return messages.DeadLetters([messages.DeadLetterDocument.of(letter) for letter in found], more)


async def count(call: Call) -> messages.Count:
    """How many match."""
    which = call.query.filter()
    await _permit(call, which)
    return messages.Count(await call.services.log.count_dead_letters(which))


async def show(call: Call) -> messages.DeadLetterDocument:
    """One dead letter, whole."""
    text = call.path["id"]
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        call.sees_all()
        raise NotFound(f"there is no dead letter {text!r}: it has a number")
    await call.hold().reach(FIRST_BYTES)
    letter = await call.services.log.dead_letter(int(text))
    call.permit_found(letter.queue)
    return messages.DeadLetterDocument.of(letter)


async def redrive(call: Call) -> Redrive:
    """Send dead letters back to the group that failed on them."""
    asked: messages.RedriveRequest = call.body
    which = asked.filter()
    await _permit(call, which)
    everything = asked.all or which.ids is not None
    return await call.services.log.redrive(which, limit=None if everything else asked.limit)


async def purge(call: Call) -> messages.Count:
    """Delete dead letters for good."""
    asked: messages.PurgeRequest = call.body
    which = asked.filter()
    if which == Filter(queue=which.queue, group=which.group) and not asked.all:
        call.sees_all()
        raise InvalidRequest("purge would delete every dead letter: name some, filter them, or say all")
    await _permit(call, which)
    return messages.Count(await call.services.log.purge(which))


async def _permit(call: Call, which: Filter) -> None:
    """Refuse dead letters of queues that the caller has no business with, or of all queues if there are such."""
    if which.queue is not None:
        call.permit(which.queue)
    elif not call.sees_all():
        if which.ids is None:
            raise Problem("forbidden", "the key is limited to some queues: name the queue whose dead letters you mean")
        call.permit_found(await call.services.log.queues_of_dead_letters(which))


def _read_ids(text: str | None) -> list[int] | None:
    if text is None:
        return None
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        raise InvalidRequest("ids are numbers of dead letters, separated by commas")
    return [int(part) for part in parts]


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/dead-letters",
        page,
        "List dead letters, the newest failure first",
        _TAG,
        _READ,
        asks=True,
        query=PageQuery,
        answer=messages.DeadLetters,
        problems=_PROBLEMS,
    ),
    Endpoint(
        "GET",
        "/v1/dead-letters/count",
        count,
        "Count dead letters",
        _TAG,
        _READ,
        asks=True,
        query=WhichQuery,
        answer=messages.Count,
        problems=_PROBLEMS,
    ),
    Endpoint(
        "GET",
        "/v1/dead-letters/{id}",
        show,
        "One dead letter, with its traceback and what happened to it before",
        _TAG,
        _READ,
        asks=True,
        answer=messages.DeadLetterDocument,
        problems=("not-found",),
    ),
    Endpoint(
        "POST",
        "/v1/dead-letters/redrive",
        redrive,
        "Send dead letters back to the group that failed on them",
        _TAG,
        _ADMIN,
        asks=True,
        body=messages.RedriveRequest,
        body_required=False,
        answer=Redrive,
        problems=_PROBLEMS,
    ),
    Endpoint(
        "POST",
        "/v1/dead-letters/purge",
        purge,
        "Delete dead letters for good",
        _TAG,
        _ADMIN,
        asks=True,
        body=messages.PurgeRequest,
        answer=messages.Count,
        problems=_PROBLEMS,
    ),
)
