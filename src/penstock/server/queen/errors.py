"""The error format of Queen's clients: ``{"error": ...}``, with the messages of their own server."""

from __future__ import annotations

import re

import msgspec
from starlette.responses import Response

from penstock.server.http.errors import PROBLEM_KINDS, ErrorFormat, Problem

# msgspec raises one class, without attributes, for every mistake in a body. So its message is parsed.
_MISSING = re.compile(r"missing required field `(\w+)`")
_WRONG_TYPE = re.compile(r"^Expected `(\w+)[^`]*`.* - at `\$\.?(?:.*\.)?(\w+)(?:\[\.\.\.\]|\[\d+\])*`$")

_MISSING_DETAILS = {
    "items": "items array is required",
    "operations": "operations array required",
    "acknowledgments": "acknowledgments array is required",
    "partitionId": "partitionId is required to ensure message uniqueness",
}
_DETAILS = {"no-such-route": "Not found", "method-not-allowed": "Method not allowed"}
#: Why routes of Queen's own server do not exist here, by the start of their paths.
_NOT_OFFERED = {
    "/api/v1/ephemeral/": "ephemeral queues are not offered: push to a queue and set its retentionSeconds",
    "/api/v1/analytics/": "time series are not offered: scrape /metrics, or read GET /v1/metrics",
    "/api/v1/status/": "time series are not offered: scrape /metrics, or read GET /v1/metrics",
    "/api/v1/system/": "not offered: all servers share the state in PostgreSQL",
    "/api/v1/migration/": "not offered: back up and restore the database with the programs of PostgreSQL",
}


class QueenError(msgspec.Struct):
    error: str


class QueenErrorFormat(ErrorFormat):
    prefix = "queen"
    media_type = "application/json"
    schema = QueenError

    def render(self, problem: Problem, request_id: str = "") -> Response:
        detail = _DETAILS.get(problem.kind, problem.detail)
        if problem.kind == "no-such-route":
            path = problem.detail.rpartition(" ")[2]
            detail = next((reason for start, reason in _NOT_OFFERED.items() if path.startswith(start)), detail)
        status = self.status_of(problem.kind)
        # The code by which clients recognize that they must slow down.
        code = {"code": "rate_limited"} if status == 429 else {}
        return Response(
            msgspec.json.encode({"error": detail, **problem.facts, **code}),
            status_code=status,
            headers=dict(problem.headers),
            media_type=self.media_type,
        )

    def status_of(self, kind: str) -> int:
        """Return the HTTP status of a kind of problem. These clients know only 400 for an invalid request."""
        status = PROBLEM_KINDS[kind].status
        return 400 if status == 422 else status

    def describe_empty_body(self) -> str:
        return "Empty request body"

    def describe_invalid_body(self, message: str) -> str:
        """Translate msgspec's message into the one of Queen's own server."""
        missing = _MISSING.search(message)
        if missing is not None:
            return _MISSING_DETAILS.get(missing[1], f"{missing[1]} is required")
        wrong = _WRONG_TYPE.match(message)
        if wrong is None:
            return message
        expected, name = wrong.groups()
        if expected == "array" and name in _MISSING_DETAILS:
            return _MISSING_DETAILS[name]
        if expected == "str":
            return f"{name[0].upper()}{name[1:]} must be a string"
        return message


QUEEN_ERRORS = QueenErrorFormat()
