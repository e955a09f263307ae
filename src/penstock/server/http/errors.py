"""Problems: the errors of the HTTP API as problem+json (RFC 9457), with stable types.

:data:`PROBLEM_KINDS` lists all types, and :func:`to_problem` finds the one for an exception. A protocol whose clients
expect another format than problem+json has its own :class:`ErrorFormat`.
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
class ProblemKind:
    """A type of problem: its name, HTTP status and title."""

    name: str
    status: int
    title: str

    @property
    def type(self) -> str:
        """The ``type`` of the problem: a stable identifier. It need not lead to a page."""
        return TYPE_PREFIX + self.name


PROBLEM_KINDS: dict[str, ProblemKind] = {
    kind.name: kind
    for kind in (
        ProblemKind("invalid-request", 400, "The request is invalid"),
        ProblemKind("invalid-json", 400, "The body is not valid JSON"),
        ProblemKind("invalid-encoding", 400, "The compressed body is damaged"),
        ProblemKind("misdirected", 421, "The request is for another host"),
        ProblemKind("unauthenticated", 401, "The caller is not authenticated"),
        ProblemKind("forbidden", 403, "The caller is not authorized"),
        ProblemKind("not-found", 404, "The resource does not exist"),
        ProblemKind("no-such-route", 404, "The address does not exist"),
        ProblemKind("method-not-allowed", 405, "The address does not support this method"),
        ProblemKind("not-acceptable", 406, "None of the accepted formats is available"),
        ProblemKind("request-timeout", 408, "The request did not arrive in time"),
        ProblemKind("conflict", 409, "The request conflicts with the stored state"),
        ProblemKind("idempotency-conflict", 409, "The idempotency key was used for another request"),
        ProblemKind("group-busy", 409, "The group belongs to a running query"),
        ProblemKind("transaction-refused", 409, "An acknowledgement was refused, so nothing was changed"),
        ProblemKind("precondition-failed", 409, "A required operation was not applied, so nothing was changed"),
        ProblemKind("too-large", 413, "The request is too large"),
        ProblemKind("unsupported-media-type", 415, "The format of the body is not supported"),
        ProblemKind("invalid-event", 422, "An event is invalid"),
        ProblemKind("invalid-option", 422, "An option is unknown or out of range"),
        ProblemKind("invalid-name", 422, "A name is invalid"),
        ProblemKind("head-too-large", 431, "The request line or the headers are too large"),
        ProblemKind("queue-full", 429, "The queue is full"),
        ProblemKind("rate-limited", 429, "Too many requests"),
        ProblemKind("overloaded", 503, "The server is overloaded"),
        ProblemKind("stopping", 503, "The server is stopping"),
        ProblemKind("database-unavailable", 503, "The database is unavailable"),
        ProblemKind("corrupt-chunk", 500, "Stored data is damaged"),
        ProblemKind("misconfigured", 500, "The server lacks a setting"),
        ProblemKind("internal", 500, "The server failed"),
    )
}


@dataclass
class Problem(Exception):
    """A refused request: the type of problem, a description, and facts as members of the response."""

    kind: str
    detail: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def status(self) -> int:
        return PROBLEM_KINDS[self.kind].status

    def response(self, request_id: str = "") -> Response:
        """Return the problem as problem+json."""
        kind = PROBLEM_KINDS[self.kind]
        body = {"type": kind.type, "title": kind.title, "status": kind.status, "detail": self.detail}
        if request_id:
            body["instance"] = f"urn:penstock:request:{request_id}"
        return Response(
            msgspec.json.encode({**body, **self.facts}),
            status_code=kind.status,
            headers=dict(self.headers),
            media_type="application/problem+json",
        )


class ProblemDocument(msgspec.Struct, rename={"kind": "type"}):
    """A problem (RFC 9457). Further members depend on its type."""

    kind: str
    title: str
    status: int
    detail: str
    instance: str | None = None


class ErrorFormat:
    """Renders the errors of a route as problem+json. A protocol with another format overrides the methods.

    Attributes:
        prefix: Starts the ids of its operations and the names of its responses in the OpenAPI document.
        media_type: The content type of an error.
        schema: The type of an error's body.
    """

    prefix: str = ""
    media_type: str = "application/problem+json"
    schema: type[msgspec.Struct] = ProblemDocument

    def render(self, problem: Problem, request_id: str = "") -> Response:
        return problem.response(request_id)

    def status_of(self, kind: str) -> int:
        return PROBLEM_KINDS[kind].status

    def describe_empty_body(self) -> str:
        """Return the detail for a request without its required body."""
        return "the body is empty"

    def describe_invalid_body(self, message: str) -> str:
        """Return the detail for a body that does not match the endpoint's type, given msgspec's message."""
        return message


PROBLEM_JSON = ErrorFormat()


def retry_after(seconds: float) -> dict[str, str]:
    """Return a ``Retry-After`` header. Its unit is whole seconds, at least one."""
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


def to_problem(error: Exception) -> Problem:
    """Return the problem for an exception; an unknown one is an internal error."""
    match error:
        case Problem():
            return error
        case errors.QueueFull():
            facts: dict[str, Any] = {"queue": error.queue, "depth": error.depth, "limit": error.limit}
            facts |= {"group": error.group, "retry_after": round(error.retry_after, 3)}
            retry = retry_after(error.retry_after)
            limits = {
                "RateLimit-Policy": f'"depth";q={error.limit}',
                "RateLimit": f'"depth";r=0;t={retry["Retry-After"]}',
            }
            return Problem("queue-full", str(error), facts, retry | limits)
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
        case errors.PreconditionFailed():
            facts = {"operation": error.index, "reason": getattr(error.result, "reason", None)}
            return Problem("precondition-failed", str(error), facts)
        case errors.TransactionRefused():
            return Problem("transaction-refused", str(error))
        case errors.Conflict():
            return Problem("conflict", str(error))
        case errors.CorruptChunk():
            facts = {"partition_id": error.partition_id, "start": error.start, "end": error.end}
            return Problem("corrupt-chunk", str(error), facts)
        case errors.ConfigurationError():
            return Problem("misconfigured", str(error))
        case psycopg.errors.InsufficientPrivilege():
            return Problem(
                "forbidden",
                "the database role of the server may not do this: use the command line with a role that may "
                "(`penstock db roles`)",
            )
        case errors.DatabaseError() | psycopg.OperationalError() | psycopg.InterfaceError():
            # The address and the message of the database are for the log, not for the caller.
            return Problem("database-unavailable", "the database cannot be reached; try again", {}, retry_after(1))
        case _:
            return internal_problem()


def internal_problem() -> Problem:
    return Problem("internal", "the server failed; its log has the cause, under the id of this request")
