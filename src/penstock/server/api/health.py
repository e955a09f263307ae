"""Whether a server is alive, and whether it can do its work."""

from __future__ import annotations

import msgspec

from penstock.server.http.endpoint import Call, Endpoint
from penstock.server.http.errors import Problem


class Alive(msgspec.Struct):
    """The process answers."""

    status: str = "alive"


class Ready(msgspec.Struct):
    """The process can do its work."""

    status: str = "ready"


async def healthz(_call: Call) -> Alive:
    """Answer, whatever the database does."""
    return Alive()


async def readyz(call: Call) -> Ready:
    """Answer if the database can be reached and its schema is this package's."""
    if call.services.stopping.is_set():
        raise Problem("stopping", "the server is stopping")
    await call.services.log.database.check()
    return Ready()


ENDPOINTS = (
    Endpoint("GET", "/healthz", healthz, "Is the process alive", "Health", answer=Alive),
    Endpoint(
        "GET",
        "/readyz",
        readyz,
        "Can the server do its work",
        "Health",
        answer=Ready,
        problems=("stopping", "database-unavailable"),
    ),
)
