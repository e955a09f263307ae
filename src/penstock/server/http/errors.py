"""What is said when a request cannot be answered: problem+json (RFC 9457), each kind with a type that stays.

A kind is a line in :data:`KINDS`; :func:`problem_of` finds the one for an error. Routes of the message plane say
the same in the shape that their clients read, ``{"error": ...}``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import msgspec
import psycopg
from starlette.responses import Response

from penstock.core import errors

TYPE_PREFIX = "https://penstock.dev/problems/"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem: the last part of its type, its status and its title."""

    name: str
    status: int
    title: str

    @property
    def type(self) -> str:
        """What stands in ``type``: a name that never changes; there need be no page behind it."""
        return TYPE_PREFIX + self.name


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("invalid-request", 400, "The request cannot be right"),
        Kind("invalid-json", 400, "The body is not JSON"),
        Kind("invalid-encoding", 400, "The body's compression is damaged"),
        Kind("misdirected", 421, "The request is for another server"),
        Kind("unauthenticated", 401, "Who asks is not known"),
        Kind("forbidden", 403, "Who asks may not do this"),
        Kind("not-found", 404, "There is no such thing"),
        Kind("no-such-route", 404, "There is no such address"),
        Kind("method-not-allowed", 405, "The address does not take this method"),
        Kind("not-acceptable", 406, "None of the forms that are accepted can be given"),
        Kind("request-timeout", 408, "The request did not arrive in time"),
        Kind("conflict", 409, "The request contradicts what is stored"),
        Kind("idempotency-conflict", 409, "The idempotency key was used for something else"),
        Kind("group-busy", 409, "The group belongs to a running query"),
        Kind("transaction-refused", 409, "An ack was refused, so nothing happened"),
        Kind("too-large", 413, "The request is too large"),
        Kind("unsupported-media-type", 415, "The body is in no form that is read here"),
        Kind("invalid-event", 422, "An event cannot be stored"),
        Kind("invalid-option", 422, "An option is unknown or out of range"),
        Kind("invalid-name", 422, "A name cannot be used"),
        Kind("head-too-large", 431, "The head of the request is too large"),
        Kind("queue-full", 429, "The queue is full"),
        Kind("rate-limited", 429, "Too many requests"),
        Kind("overloaded", 503, "The server has more to do than it can"),
        Kind("stopping", 503, "The server is stopping"),
        Kind("database-unavailable", 503, "The database cannot be reached"),
        Kind("corrupt-chunk", 500, "What is stored is damaged"),
        Kind("internal", 500, "Something is wrong here"),
    )
}


@dataclass
class Problem(Exception):
    """A request that is refused: what kind, in words, and the facts."""

    kind: str
    detail: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def status(self) -> int:
        """The HTTP status."""
        return KINDS[self.kind].status

    def response(self, request_id: str = "") -> Response:
        """The answer as problem+json."""
        kind = KINDS[self.kind]
        body = {"type": kind.type, "title": kind.title, "status": kind.status, "detail": self.detail}
        if request_id:
            body["instance"] = f"urn:penstock:request:{request_id}"
        return Response(
            msgspec.json.encode({**body, **self.facts}),
            status_code=kind.status,
            headers=dict(self.headers),
            media_type="application/problem+json",
        )

    def plane_response(self) -> Response:
        """The same in the shape that clients of the message plane read."""
        # They know one status for all that is wrong with what they sent.
        return Response(
            msgspec.json.encode({"error": self.detail, **self.facts}),
            status_code=400 if self.status == 422 else self.status,
            headers=dict(self.headers),
            media_type="application/json",
        )


#: How the addresses of the message plane begin.
PLANE_PATHS = ("/api/v1", "/streams/v1")


def retry_after(seconds: float) -> dict[str, str]:
    """The header that says when to come again, in whole seconds as it must be, and never 0."""
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


def problem_of(error: Exception) -> Problem:
    """The problem that an error of ours is; what is none of ours is a fault of the server."""
    match error:
        case Problem():
            return error
        case errors.QueueFull():
            facts: dict[str, Any] = {"queue": error.queue, "depth": error.depth, "limit": error.limit}
            facts["retry_after"] = round(error.retry_after, 3)
            return Problem("queue-full", str(error), facts, retry_after(error.retry_after))
        case errors.InvalidEvent():
            facts = {"index": error.index, "field": error.field, "reason": error.reason}
            return Problem("invalid-event", str(error), facts)
        case errors.InvalidOption():
            return Problem("invalid-option", str(error), {"option": error.option})
        case errors.InvalidName():
            return Problem("invalid-name", str(error))
        case errors.InvalidRequest():
            return Problem("invalid-request", str(error))
        case errors.NotFound(queue=str(queue)):
            return Problem("not-found", f"{error}, or PUT /v1/queues/{quote(queue, safe='')}")
        case errors.NotFound():
            return Problem("not-found", str(error))
        case errors.IdempotencyConflict():
            return Problem("idempotency-conflict", str(error))
        case errors.GroupBusy():
            return Problem("group-busy", str(error))
        case errors.TransactionRefused():
            return Problem("transaction-refused", str(error))
        case errors.Conflict():
            return Problem("conflict", str(error))
        case errors.CorruptChunk():
            facts = {"partition_id": error.partition_id, "start": error.start, "end": error.end}
            return Problem("corrupt-chunk", str(error), facts)
        case psycopg.errors.InsufficientPrivilege():
            said = "the role that the server connects to the database as may not do this: do it with the command line"
            return Problem("forbidden", f"{said}, as a role that may (`penstock db roles`)")
        case errors.DatabaseError() | psycopg.OperationalError() | psycopg.InterfaceError():
            # Where the database is, and what it said, is for the log and not for whoever asks.
            return Problem("database-unavailable", "the database cannot be reached; ask again", {}, retry_after(1))
        case _:
            return Problem("internal", "the server failed; its log says more, under the request's id")
