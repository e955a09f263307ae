"""``/v1/dead-letters``: list, inspect, redrive and purge dead letters."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from penstock.core.errors import InvalidRequest, NotFound
from penstock.log.dead_letters.dead_letter import DeadLetter, DeadLetterFilter, Edit, Redrive
from penstock.log.read.ack_request import NonNegativeInt
from penstock.log.read.pop import MIN_POP_BYTES
from penstock.protocol import messages
from penstock.server.auth.identity import Role
from penstock.server.http.errors import Problem
from penstock.server.http.responses import MAX_RESPONSE_BYTES
from penstock.server.routing.call import ApiCall
from penstock.server.routing.endpoint import EndpointGroup
from penstock.stream.sql.json_mapping import compile_mapping

routes = EndpointGroup("Dead letters", problems=("not-found", "invalid-name"))
_MAX_ID_DIGITS = 18


class DeadLetterQuery(messages.DeadLetterConditions, frozen=True):
    """Which dead letters: those that match all given conditions. ``ids`` are separated by commas."""

    ids: str | None = None
    #: Not null, which the text "null" of a query string would be.
    after: NonNegativeInt = 0


class ListDeadLettersQuery(DeadLetterQuery, frozen=True):
    oldest_first: bool = False
    limit: Annotated[int, Meta(ge=1, le=messages.MAX_EVENTS)] = 100
    offset: NonNegativeInt = 0


@routes.get("/v1/dead-letters", "List dead letters", Role.READ, Role.CONSUME, checks_queues=True)
async def list_dead_letters(call: ApiCall, query: ListDeadLettersQuery) -> messages.DeadLetterList:
    """Return the dead letters that match: the newest failure first, or the smallest id first."""
    which = query.to_filter(_parse_ids(query.ids))
    await _require_access(call, which)
    max_bytes = await call.reserve_response(MAX_RESPONSE_BYTES)
    letters, has_more = await call.log.dead_letter_page(
        which, query.limit, query.offset, max_bytes, oldest_first=query.oldest_first
    )
    return messages.DeadLetterList(letters, has_more)


@routes.get("/v1/dead-letters/count", "Count dead letters", Role.READ, Role.CONSUME, checks_queues=True)
async def count_dead_letters(call: ApiCall, query: DeadLetterQuery) -> messages.CountResponse:
    which = query.to_filter(_parse_ids(query.ids))
    await _require_access(call, which)
    return messages.CountResponse(await call.log.count_dead_letters(which))


@routes.get(
    "/v1/dead-letters/{id}", "Get a dead letter", Role.READ, Role.CONSUME, checks_queues=True, problems=("not-found",)
)
async def get_dead_letter(call: ApiCall) -> DeadLetter:
    """Return one dead letter, with its traceback and its history."""
    text = call.path["id"]
    if not _is_id(text):
        call.can_see_all()
        raise NotFound(f"there is no dead letter {text!r}: an id is a number")
    await call.reserve_memory().acquire(MIN_POP_BYTES)
    letter = await call.log.dead_letter(int(text))
    call.require_access_silently(letter.queue)
    return letter


@routes.post("/v1/dead-letters/redrive", "Redrive dead letters", Role.ADMIN, checks_queues=True, body_required=False)
async def redrive_dead_letters(call: ApiCall, body: messages.RedriveRequest) -> Redrive:
    """Send dead letters back to the group that failed on them, as they are or with other data."""
    which = body.filter()
    await _require_access(call, which)
    is_unlimited = body.all or which.ids is not None
    return await call.log.redrive(which, limit=None if is_unlimited else body.limit, edit=_edit_function(body))


@routes.post("/v1/dead-letters/redrive/preview", "Preview a redrive with a mapping", Role.ADMIN, checks_queues=True)
async def preview_redrive(call: ApiCall, body: messages.PreviewRequest) -> messages.RedrivePreview:
    """Return what a redrive with a mapping would send, for the oldest dead letters that match. Nothing is changed."""
    which = body.filter()
    await _require_access(call, which)
    edit = compile_mapping(body.mapping)
    max_bytes = await call.reserve_response(MAX_RESPONSE_BYTES)
    edits = await call.log.preview_redrive(which, edit, limit=body.limit, max_bytes=max_bytes // 2)
    return messages.RedrivePreview(edits, await call.log.count_dead_letters(which))


@routes.post("/v1/dead-letters/purge", "Delete dead letters", Role.ADMIN, checks_queues=True)
async def purge_dead_letters(call: ApiCall, body: messages.PurgeRequest) -> messages.CountResponse:
    """Delete dead letters permanently."""
    which = body.filter()
    if which == DeadLetterFilter(queue=which.queue, group=which.group) and not body.all:
        call.can_see_all()
        raise InvalidRequest("this would delete every dead letter: give ids, a filter, or all=true")
    await _require_access(call, which)
    return messages.CountResponse(await call.log.purge(which))


async def _require_access(call: ApiCall, which: DeadLetterFilter) -> None:
    """Raise a problem unless the caller may access the queues of all dead letters that match."""
    if which.queue is not None:
        call.require_access(which.queue)
    elif not call.can_see_all():
        if which.ids is None:
            raise Problem("forbidden", "the key is limited to some queues: name the queue of the dead letters")
        call.require_access_silently(await call.log.dead_letter_queues(which))


def _edit_function(body: messages.RedriveRequest) -> Edit | None:
    if body.edits is not None:
        edits = body.edits
        return lambda letter: bytes(edits[letter.id])
    return None if body.mapping is None else compile_mapping(body.mapping)


def _parse_ids(text: str | None) -> list[int] | None:
    if text is None:
        return None
    parts = text.split(",")
    if not all(map(_is_id, parts)):
        raise InvalidRequest("ids must be numbers of dead letters, separated by commas")
    return [int(part) for part in parts]


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_ID_DIGITS
