"""Converts the problem document of a server's response to an error."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.client.http.connection import HttpResponse
from penstock.core import errors
from penstock.core.errors import (
    AccessDenied,
    DatabaseUnavailable,
    InvalidEvent,
    InvalidOption,
    InvalidRequest,
    PenstockError,
    QueueFull,
    RateLimited,
    ServerError,
    ServerUnavailable,
)
from penstock.log.coordination.kv import KvResult

#: The error classes of problem types that carry nothing but a message.
_SIMPLE_ERRORS: dict[str, type[PenstockError]] = {
    "invalid-request": InvalidRequest,
    "invalid-json": InvalidRequest,
    "invalid-encoding": InvalidRequest,
    "too-large": InvalidRequest,
    "invalid-name": errors.InvalidName,
    "not-found": errors.NotFound,
    "conflict": errors.Conflict,
    "idempotency-conflict": errors.IdempotencyConflict,
    "group-busy": errors.GroupBusy,
    "transaction-refused": errors.TransactionRefused,
    "database-unavailable": DatabaseUnavailable,
}


def error_from_response(server: str, response: HttpResponse) -> PenstockError:
    """Return the error for a response; a response that is no problem document comes from a proxy or another server."""
    status = response.status
    problem = _read_problem(response)
    if problem is None:
        message = f"{server} responded {status} {response.reason}, and the response is not from a Penstock server"
        if status in (401, 403):
            return AccessDenied(f"{message}; check the API key and the proxies in between", status=status)
        kind = ServerUnavailable if status in (408, 429, 502, 503, 504) else ServerError
        return kind(f"{message}; check the url and the proxies in between", status=status)
    name, detail = str(problem["type"]).rpartition("/")[2], str(problem.get("detail", ""))
    if name in _SIMPLE_ERRORS:
        return _SIMPLE_ERRORS[name](detail)
    match name:
        case "invalid-event":
            return InvalidEvent(
                str(problem.get("reason", detail)),
                index=int(problem.get("index", 0)),
                field=str(problem.get("field", "event")),
            )
        case "precondition-failed":
            result = KvResult(False, problem.get("reason"))
            return errors.PreconditionFailed(detail, int(problem.get("operation", 0)), result)
        case "invalid-option":
            return InvalidOption(detail, option=str(problem.get("option", "")))
        case "queue-full":
            return QueueFull(
                detail,
                queue=str(problem.get("queue", "")),
                depth=int(problem.get("depth", 0)),
                limit=int(problem.get("limit", 0)),
                retry_after=float(problem.get("retry_after", 1.0)),
                group=problem.get("group"),
            )
        case "rate-limited":
            return RateLimited(detail, retry_after=retry_after_seconds(response) or 1.0, status=status)
        case "unauthenticated":
            return AccessDenied(f"{detail} (a client takes it from api_key= or PENSTOCK_API_KEY)", status=status)
        case "forbidden":
            return AccessDenied(detail, status=status)
        case "overloaded" | "stopping" | "request-timeout":
            return ServerUnavailable(detail, status=status)
    return ServerError(f"the server refused the request: {detail or problem.get('title') or status}", status=status)


def retry_after_seconds(response: HttpResponse) -> float | None:
    """Return the seconds of the Retry-After header; None without one. Dates are ignored, a server sends none."""
    text = response.headers.get("retry-after", "")
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds < 86_400 else None


def _read_problem(response: HttpResponse) -> dict[str, Any] | None:
    try:
        problem = msgspec.json.decode(response.content)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return problem if isinstance(problem, dict) and isinstance(problem.get("type"), str) else None
