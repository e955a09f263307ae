"""``/healthz`` and ``/readyz``."""

from __future__ import annotations

import msgspec

from penstock.server.http.errors import Problem
from penstock.server.routing.call import ApiCall
from penstock.server.routing.endpoint import EndpointGroup

routes = EndpointGroup("Health")


class Alive(msgspec.Struct):
    """The process runs."""

    status: str = "alive"


class Ready(msgspec.Struct):
    """The server can handle requests."""

    status: str = "ready"


@routes.get("/healthz", "Check that the process runs")
async def get_liveness(_call: ApiCall) -> Alive:
    """Return that the process runs, whatever the state of the database."""
    return Alive()


@routes.get("/readyz", "Check that the server can handle requests", problems=("stopping", "database-unavailable"))
async def get_readiness(call: ApiCall) -> Ready:
    """Return that the database can be reached and has the schema of this version."""
    if call.services.stopping.is_set():
        raise Problem("stopping", "the server is stopping")
    await call.log.database.check()
    return Ready()
