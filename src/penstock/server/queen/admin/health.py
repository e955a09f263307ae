"""The health check of the protocol."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import msgspec

from penstock.core.errors import DatabaseError
from penstock.server.http.responses import json_response
from penstock.server.queen.endpoint import queen_endpoint
from penstock.server.routing.call import ApiCall

_VERSION = version("penstock")


class QueenHealth(msgspec.Struct):
    """The state of the server and its database."""

    status: str
    database: str
    version: str
    server: str = "penstock"
    worker_id: int = 0
    shared_state: dict[str, bool] = msgspec.field(default_factory=lambda: {"enabled": False})


async def get_health(call: ApiCall) -> Any:
    """Return 200 if the database can be reached, 503 if it cannot or the server is stopping."""
    try:
        await call.services.log.database.check()
    except DatabaseError:
        return json_response(QueenHealth("unhealthy", "disconnected", _VERSION), 503)
    if call.services.stopping.is_set():
        return json_response(QueenHealth("stopping", "connected", _VERSION), 503)
    return QueenHealth("healthy", "connected", _VERSION)


ENDPOINTS = (
    queen_endpoint(
        "GET",
        "/health",
        get_health,
        "Check the health of the server",
        response=QueenHealth,
        openapi={"responses": {"503": {"description": "The database cannot be reached, or the server is stopping."}}},
    ),
)
