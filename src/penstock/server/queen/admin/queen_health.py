"""The health check of the protocol."""

from __future__ import annotations

from importlib.metadata import version

import msgspec
from starlette.responses import Response

from penstock.core.errors import DatabaseError
from penstock.server.http.responses import json_response
from penstock.server.queen.endpoint import queen_routes
from penstock.server.routing.call import ApiCall

routes = queen_routes()

_VERSION = version("penstock")
_UNHEALTHY = {"responses": {"503": {"description": "The database cannot be reached, or the server is stopping."}}}


class QueenHealth(msgspec.Struct):
    status: str
    database: str
    version: str
    server: str = "penstock"
    worker_id: int = 0
    client_query_state: dict[str, bool] = msgspec.field(default_factory=lambda: {"enabled": False})


@routes.get("/health", "Check the health of the server", openapi=_UNHEALTHY)
async def get_health(call: ApiCall) -> QueenHealth | Response:
    """Return 200 if the database can be reached, 503 if it cannot or the server is stopping."""
    try:
        await call.log.database.check()
    except DatabaseError:
        return json_response(QueenHealth("unhealthy", "disconnected", _VERSION), 503)
    if call.services.stopping.is_set():
        return json_response(QueenHealth("stopping", "connected", _VERSION), 503)
    return QueenHealth("healthy", "connected", _VERSION)
