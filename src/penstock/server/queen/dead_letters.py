"""Dead letters: looked at, deleted, sent back."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta, Raw

from penstock.core.errors import NotFound
from penstock.log.dead_letters import DeadLetter, Filter
from penstock.server.api.events import MOST_BYTES
from penstock.server.http.endpoint import Call, Endpoint, Role
from penstock.server.http.errors import Problem
from penstock.server.queen.identifiers import Kind, moment, pack, read_moment, unpack
from penstock.server.queen.push import PRODUCER_HEADER
from penstock.server.queen.queues import TAG

Limit = Annotated[int, Meta(ge=1, le=100_000)]
Offset = Annotated[int, Meta(ge=0, le=2**62)]
#: A page that is larger is refused.
_MOST_BYTES = 64 << 20


class DeadLetterQuery(msgspec.Struct, rename="camel"):
    """Which dead letters."""

    queue: str = ""
    consumer_group: str = ""
    partition: str = ""
    from_: str = msgspec.field(default="", name="from")
    to: str = ""
    limit: Limit = 100
    offset: Offset = 0


class DeadMessage(msgspec.Struct, rename="camel"):
    """A message that could not be processed, and why."""

    id: str
    transaction_id: str
    partition_id: str
    queue: str
    partition: str | None
    consumer_group: str
    error_message: str
    retry_count: int
    data: Raw
    producer_sub: str | None
    created_at: datetime
    failed_at: datetime


class Page(msgspec.Struct):
    """Where in a list this is."""

    limit: int
    offset: int


class DeadMessages(msgspec.Struct):
    """Dead letters, newest failure first."""

    messages: list[DeadMessage]
    total: int
    pagination: Page


class Purged(msgspec.Struct):
    """How many dead letters are gone."""

    deleted: int
    success: bool = True


class Replayed(msgspec.Struct, rename="camel"):
    """A dead letter that is delivered again, to the group that failed on it."""

    id: str
    transaction_id: str
    consumer_group: str
    queue: str
    success: bool = True


async def list_dead(call: Call) -> DeadMessages:
    """List dead letters."""
    query: DeadLetterQuery = call.query
    which = await _which(call, query)
    page = Page(query.limit, query.offset)
    if which is None:
        return DeadMessages([], 0, page)
    log = call.services.log
    letters = await _page(call, which, query)
    return DeadMessages([_message(letter) for letter in letters], await log.count_dead_letters(which), page)


async def _page(call: Call, which: Filter, query: DeadLetterQuery) -> list[DeadLetter]:
    """All of a page: clients go on behind the limit that they asked for, and would miss what was left out."""
    # Most pages are small, and what is held for this one others cannot have.
    for size in (MOST_BYTES, _MOST_BYTES):
        most = await call.room(size)
        letters, more = await call.services.log.part_of_dead_letters(which, query.limit, query.offset, most)
        if not more:
            return letters
    if most < min(_MOST_BYTES, call.services.given_out.shared):
        raise call.hold().refusal()
    raise Problem(
        "invalid-request",
        f"the dead letters from offset {query.offset} on are large: ask for limit={len(letters)}, or less, at a time",
    )


async def purge(call: Call) -> Purged:
    """Delete the dead letters of a queue."""
    query: DeadLetterQuery = call.query
    if not query.queue:
        raise Problem("invalid-request", "queue is required")
    which = await _which(call, query)
    return Purged(0 if which is None else await call.services.log.purge(which))


async def replay(call: Call) -> Replayed:
    """Send a dead letter back."""
    number = unpack(Kind.DEAD_LETTER, call.path["id"])
    call.permit(())
    if number is None:
        raise NotFound("Message not found")
    log = call.services.log
    letter = await log.dead_letter(number)
    call.permit_found(letter.queue)
    done = await log.redrive(Filter(ids=[number]))
    for problem in done.problems.values():
        raise Problem("conflict", problem)
    return Replayed(call.path["id"], transaction_id(letter), letter.group, letter.queue)


async def _which(call: Call, query: DeadLetterQuery) -> Filter | None:
    """The filter; None if it can match nothing."""
    if query.queue:
        call.permit(query.queue)
    elif not call.sees_all():
        raise Problem("forbidden", "the key is limited to some queues: name one")
    try:
        since, until = (read_moment(text) if text else None for text in (query.from_, query.to))
    except ValueError:
        raise Problem("invalid-request", "from and to must be ISO timestamps") from None
    if query.queue and await call.services.log.catalog.find(query.queue) is None:
        return None
    return Filter(
        queue=query.queue or None,
        group=query.consumer_group or None,
        partition=query.partition or None,
        since=since,
        until=until,
    )


def transaction_id(letter: DeadLetter) -> str:
    """The id of the message that a dead letter was."""
    return letter.event_id or f"{letter.partition_id}-{letter.offset}"


def _message(letter: DeadLetter) -> DeadMessage:
    return DeadMessage(
        pack(Kind.DEAD_LETTER, letter.id),
        transaction_id(letter),
        pack(Kind.PARTITION, letter.partition_id),
        letter.queue,
        letter.partition,
        letter.group,
        letter.error,
        letter.attempts,
        Raw(letter.raw),
        letter.headers.get(PRODUCER_HEADER),
        moment(letter.appended_at),
        moment(letter.failed_at),
    )


ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/v1/dlq",
        list_dead,
        "List dead letters",
        TAG,
        roles=frozenset({Role.READ, Role.CONSUME}),
        asks=True,
        query=DeadLetterQuery,
        answer=DeadMessages,
        plane=True,
        problems=("invalid-name",),
    ),
    Endpoint(
        "DELETE",
        "/api/v1/dlq",
        purge,
        "Delete dead letters of a queue",
        TAG,
        roles=frozenset({Role.ADMIN}),
        asks=True,
        query=DeadLetterQuery,
        answer=Purged,
        plane=True,
        problems=("invalid-name",),
    ),
    Endpoint(
        "POST",
        "/api/v1/dlq/{id}/replay",
        replay,
        "Send a dead letter back",
        TAG,
        roles=frozenset({Role.CONSUME}),
        asks=True,
        answer=Replayed,
        plane=True,
        problems=("not-found", "conflict"),
    ),
)
