"""JSON responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

#: Data of events in one response. Handlers return fewer events rather than more data.
MAX_RESPONSE_BYTES = 16 << 20
_CHUNK_BYTES = 256 << 10


class _ChunkedResponse(Response):
    """A large response, sent as fast as the client reads.

    Each chunk that the client takes counts as progress, so that a slow client is not disconnected as stalled.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        rest = memoryview(self.body)
        while len(rest) > _CHUNK_BYTES:
            await send({"type": "http.response.body", "body": rest[:_CHUNK_BYTES], "more_body": True})
            rest = rest[_CHUNK_BYTES:]
        await send({"type": "http.response.body", "body": rest})


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    body = msgspec.json.encode(value)
    kind = Response if len(body) <= _CHUNK_BYTES else _ChunkedResponse
    return kind(body, status_code=status, headers=dict(headers or {}), media_type="application/json")
