"""From the problem that a server answers with to the error that it was there."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.client.http.connection import Answer
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

#: Kinds of problem whose error says nothing but what happened.
_PLAIN: dict[str, type[PenstockError]] = {
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


def error_of(server: str, answer: Answer) -> PenstockError:
    """The error that an answer stands for; one that does not come from Penstock is the fault of what is in between."""
    status = answer.status
    problem = _problem(answer)
    if problem is None:
        said = f"{server} answered {status} {answer.reason}, and not as a Penstock server does"
        if status in (401, 403):
            return AccessDenied(f"{said}; check the API key, and what is in between", status=status)
        kind = ServerUnavailable if status in (408, 429, 502, 503, 504) else ServerError
        return kind(f"{said}; check the url, and what is in between", status=status)
    name, detail = str(problem["type"]).rpartition("/")[2], str(problem.get("detail", ""))
    if name in _PLAIN:
        return _PLAIN[name](detail)
    match name:
        case "invalid-event":
            return InvalidEvent(
                str(problem.get("reason", detail)),
                index=int(problem.get("index", 0)),
                field=str(problem.get("field", "event")),
            )
        case "invalid-option":
            return InvalidOption(detail, option=str(problem.get("option", "")))
        case "queue-full":
            return QueueFull(
                detail,
                queue=str(problem.get("queue", "")),
                depth=int(problem.get("depth", 0)),
                limit=int(problem.get("limit", 0)),
                retry_after=float(problem.get("retry_after", 1.0)),
            )
        case "rate-limited":
            return RateLimited(detail, retry_after=retry_after(answer) or 1.0, status=status)
        case "unauthenticated" | "forbidden":
            return AccessDenied(detail, status=status)
        case "overloaded" | "stopping" | "request-timeout":
            return ServerUnavailable(detail, status=status)
    return ServerError(f"the server refused: {detail or problem.get('title') or status}", status=status)


def retry_after(answer: Answer) -> float | None:
    """The seconds that an answer asks to wait; None if it names none (a date is none that we send)."""
    text = answer.headers.get("retry-after", "")
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds < 86_400 else None


def _problem(answer: Answer) -> dict[str, Any] | None:
    try:
        problem = msgspec.json.decode(answer.content)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return problem if isinstance(problem, dict) and isinstance(problem.get("type"), str) else None
