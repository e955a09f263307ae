"""The endpoints that list, delete and replay dead letters."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Raw

from penstock.core.errors import NotFound
from penstock.log.dead_letters.dead_letter import DeadLetter, DeadLetterFilter
from penstock.server.auth.identity import Role
from penstock.server.http.errors import Problem
from penstock.server.http.responses import MAX_RESPONSE_BYTES
from penstock.server.queen.endpoint import queen_routes
from penstock.server.queen.identifiers import PRODUCER_HEADER, IdKind, decode_id, encode_id, parse_time_range
from penstock.server.queen.pagination import Limit, Offset, Pagination
from penstock.server.routing.call import ApiCall

routes = queen_routes("invalid-name")

#: A larger page is refused.
_MAX_PAGE_BYTES = 64 << 20


class DeadLetterParameters(msgspec.Struct, rename="camel"):
    queue: str = ""
    consumer_group: str = ""
    partition: str = ""
    from_: str = msgspec.field(default="", name="from")
    to: str = ""
    limit: Limit = 100
    offset: Offset = 0


class DeadMessage(msgspec.Struct, rename="camel"):
    """A message that failed, with its error."""

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


class DeadMessages(msgspec.Struct):
    """A page of dead letters, newest failure first."""

    messages: list[DeadMessage]
    total: int
    pagination: Pagination


class DeletedDeadMessages(msgspec.Struct):
    deleted: int
    success: bool = True


class ReplayedDeadMessage(msgspec.Struct, rename="camel"):
    """A dead letter that its group receives again."""

    id: str
    transaction_id: str
    consumer_group: str
    queue: str
    success: bool = True


@routes.get("/api/v1/dlq", "List dead letters", Role.READ, Role.CONSUME, checks_queues=True)
async def list_dead_letters(call: ApiCall, query: DeadLetterParameters) -> DeadMessages:
    dead_filter = await _filter(call, query)
    page = Pagination(query.limit, query.offset)
    if dead_filter is None:
        return DeadMessages([], 0, page)
    letters = await _read_page(call, dead_filter, query)
    total = await call.log.count_dead_letters(dead_filter)
    return DeadMessages([_message(letter) for letter in letters], total, page)


async def _read_page(call: ApiCall, dead_filter: DeadLetterFilter, query: DeadLetterParameters) -> list[DeadLetter]:
    """Return the whole page or refuse it: clients ask next for what follows their limit, and would miss the rest."""
    # Most pages are small, and memory reserved for this response is not available to others.
    for size in (MAX_RESPONSE_BYTES, _MAX_PAGE_BYTES):
        max_bytes = await call.reserve_response(size)
        letters, has_more = await call.log.dead_letter_page(dead_filter, query.limit, query.offset, max_bytes)
        if not has_more:
            return letters
    if max_bytes < call.services.response_memory.clamp(_MAX_PAGE_BYTES):
        raise call.reserve_memory().refusal()
    raise Problem(
        "invalid-request",
        f"the dead letters from offset {query.offset} on are too large for one page: use limit={len(letters)} or less",
    )


@routes.delete("/api/v1/dlq", "Delete dead letters of a queue", Role.ADMIN, checks_queues=True)
async def purge_dead_letters(call: ApiCall, query: DeadLetterParameters) -> DeletedDeadMessages:
    if not query.queue:
        raise Problem("invalid-request", "queue is required")
    dead_filter = await _filter(call, query)
    return DeletedDeadMessages(0 if dead_filter is None else await call.log.purge(dead_filter))


@routes.post(
    "/api/v1/dlq/{id}/replay",
    "Replay a dead letter",
    Role.ADMIN,
    checks_queues=True,
    problems=("not-found", "conflict"),
)
async def replay_dead_letter(call: ApiCall) -> ReplayedDeadMessage:
    """Deliver a dead letter again to the group that failed on it."""
    letter_id = decode_id(IdKind.DEAD_LETTER, call.path["id"])
    if letter_id is None:
        raise NotFound("Message not found")
    letter = await call.log.dead_letter(letter_id)
    call.require_access_silently(letter.queue)
    done = await call.log.redrive(DeadLetterFilter(ids=[letter_id]))
    for problem in done.problems.values():
        raise Problem("conflict", problem)
    return ReplayedDeadMessage(call.path["id"], _transaction_id(letter), letter.group, letter.queue)


async def _filter(call: ApiCall, query: DeadLetterParameters) -> DeadLetterFilter | None:
    """Return the filter of a request; None if its queue does not exist."""
    if query.queue:
        call.require_access(query.queue)
    elif not call.can_see_all():
        raise Problem("forbidden", "the key is limited to some queues: name one")
    since, until = parse_time_range(query.from_, query.to)
    if query.queue and await call.log.catalog.find(query.queue) is None:
        return None
    return DeadLetterFilter(
        queue=query.queue or None,
        group=query.consumer_group or None,
        partition=query.partition or None,
        since=since,
        until=until,
    )


def _transaction_id(letter: DeadLetter) -> str:
    return letter.event_id or f"{letter.partition_id}-{letter.offset}"


def _message(letter: DeadLetter) -> DeadMessage:
    return DeadMessage(
        encode_id(IdKind.DEAD_LETTER, letter.id),
        _transaction_id(letter),
        encode_id(IdKind.PARTITION, letter.partition_id),
        letter.queue,
        letter.partition,
        letter.group,
        letter.error,
        letter.attempts,
        Raw(letter.raw),
        letter.headers.get(PRODUCER_HEADER),
        letter.appended_at,
        letter.failed_at,
    )
