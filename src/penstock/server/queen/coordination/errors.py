"""Errors with the codes by which clients of the key-value store, timers and locks tell them apart."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from penstock.server.http.errors import Problem
from penstock.server.queen.errors import QueenErrorFormat
from penstock.server.routing.endpoint import EndpointGroup


class CodedErrorFormat(QueenErrorFormat):
    """``{"error": code, "detail": text}`` for an invalid request; other errors are those of the protocol."""

    def __init__(self, code: str) -> None:
        self._code = code

    def render(self, problem: Problem, request_id: str = "") -> Response:
        if self.status_of(problem.kind) != 400:
            return super().render(problem, request_id)
        body = {"error": self._code, "code": self._code, "reason": problem.kind, "detail": problem.detail}
        return Response(msgspec.json.encode({**problem.facts, **body}), status_code=400, media_type=self.media_type)


def coordination_routes(surface: str) -> EndpointGroup:
    """Return the group of endpoints of one surface: ``kv``, ``timers`` or ``locks``."""
    return EndpointGroup(
        "Queen protocol",
        problems=("invalid-name", "invalid-option"),
        errors=CodedErrorFormat(f"{surface}_bad_request"),
        lenient_query=True,
    )
