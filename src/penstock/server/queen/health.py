"""Health as the plane's clients ask for it."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import msgspec

from penstock.core.errors import DatabaseError
from penstock.server.http.endpoint import Call, Endpoint, json_response
from penstock.server.queen.queues import TAG

_VERSION = version("penstock")


class Health(msgspec.Struct):
    """Whether the server can do its work."""

    status: str
    database: str
    version: str
    server: str = "penstock"
    worker_id: int = 0
    shared_state: dict[str, bool] = msgspec.field(default_factory=lambda: {"enabled": False})


async def health(call: Call) -> Any:
    """Answer 200 if the database can be reached, 503 if not."""
    try:
        await call.services.log.database.check()
    except DatabaseError:
        return json_response(Health("unhealthy", "disconnected", _VERSION), 503)
    if call.services.stopping.is_set():
        return json_response(Health("stopping", "connected", _VERSION), 503)
    return Health("healthy", "connected", _VERSION)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/health",
        health,
        "Whether the server can do its work",
        TAG,
        answer=Health,
        plane=True,
        documented={"responses": {"503": {"description": "The database cannot be reached, or the server stops."}}},
    ),
)
