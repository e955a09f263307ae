"""The ASGI application: every route, and what is the same for all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route, Router, WebSocketRoute
from starlette.types import Receive, Scope, Send

from penstock.core.clock import Clock
from penstock.db.pool import Database
from penstock.log.log import Log
from penstock.server.api import api_keys, consume, dead_letters, events, gates, groups, health, queries, queues, rules
from penstock.server.auth.authenticate import Guard
from penstock.server.http import openapi
from penstock.server.http.endpoint import Endpoint
from penstock.server.http.errors import KINDS, PLANE_PATHS, Problem
from penstock.server.http.middleware import Frame
from penstock.server.http.routing import Dispatch
from penstock.server.http.tracing import Tracing, tracing_of
from penstock.server.http.websocket import SocketDispatch
from penstock.server.ingest import push as ingest
from penstock.server.live import routes as live_routes
from penstock.server.metrics import routes as metrics_routes
from penstock.server.metrics.counters import Instruments
from penstock.server.queen.routes import ENDPOINTS as PLANE
from penstock.server.services import Services
from penstock.server.settings import ServerSettings

#: Every route, those that are called most first.
ENDPOINTS: tuple[Endpoint, ...] = (
    *ingest.ENDPOINTS,
    *PLANE,
    *consume.ENDPOINTS,
    *events.ENDPOINTS,
    *queues.ENDPOINTS,
    *groups.ENDPOINTS,
    *dead_letters.ENDPOINTS,
    *health.ENDPOINTS,
    *openapi.ENDPOINTS,
    *metrics_routes.ENDPOINTS,
    *live_routes.ENDPOINTS,
    *queries.ENDPOINTS,
    *gates.ENDPOINTS,
    *rules.ENDPOINTS,
    *api_keys.ENDPOINTS,
)

_KIND_OF_STATUS = {404: "no-such-route", 405: "method-not-allowed"}


def create_app(
    settings: ServerSettings,
    *,
    endpoints: Sequence[Endpoint] = ENDPOINTS,
    started: Callable[[Services], None] | None = None,
    clock: Clock | None = None,
) -> Frame:
    """The application of one server process; it opens the database when it is started and closes it when it ends."""
    metrics = Instruments(settings.metrics_dir)
    tracing = tracing_of(settings)
    database = Database(settings.core)
    services = Services(
        settings,
        _log(database, clock, metrics, tracing),
        Guard(settings, database) if settings.is_guarded else None,
        metrics=metrics,
        endpoints=endpoints,
    )

    @asynccontextmanager
    async def lifespan(_app: object) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.callback(metrics.board.close)
            if tracing is not None:
                stack.callback(tracing.close)
            await services.log.open()
            stack.push_async_callback(services.log.close)
            if services.guard is not None:
                await stack.enter_async_context(services.guard.running())
            stack.callback(services.stopping.set)
            if started is not None:
                started(services)
            yield

    app = Routes(_routes(endpoints, services))
    if tracing is not None:
        tracing.app = app
    return Frame(tracing or app, settings, metrics, lifespan)


class Routes:
    """Finds who answers a request.

    Starlette's router without what an application of Starlette puts around it: the frame does that for all requests.
    """

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self.routes = routes
        # An address is what it is; a redirect would be made of the Host header that somebody sent.
        self._router = Router(routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        scope["app"] = self
        try:
            await self._router(scope, receive, send)
        except HTTPException as error:
            response = _no_such_thing(Request(scope), error)
            await response(scope, receive, send)


def _log(database: Database, clock: Clock | None, metrics: Instruments, tracing: Tracing | None) -> Log:
    """The log, which tells of its commits to whoever measures."""
    if tracing is None:
        return Log(database, clock=clock, committed=metrics.committed)

    def committed(seconds: float) -> None:
        metrics.committed(seconds)
        tracing.committed(seconds)

    return Log(database, clock=clock, committed=committed, stamp=tracing.stamp)


def _routes(endpoints: Sequence[Endpoint], services: Services) -> list[BaseRoute]:
    routes: list[BaseRoute] = []
    for endpoint in endpoints:
        if endpoint.websocket:
            routes.append(WebSocketRoute(endpoint.path, SocketDispatch(endpoint, services)))
            continue
        route = Route(endpoint.path, Dispatch(endpoint, services), methods=[endpoint.method], include_in_schema=False)
        if endpoint.changes and route.methods is not None:
            # Whoever asks for the head of an answer does not get what the answer would have held.
            route.methods.discard("HEAD")
        routes.append(route)
    return routes


def _no_such_thing(request: Request, error: HTTPException) -> Response:
    """What Starlette itself refuses, as a problem."""
    status = error.status_code
    kind = _KIND_OF_STATUS.get(status, "internal")
    request.scope["state"]["problem"] = kind
    headers = {"Allow": _methods(request)} if status == 405 else {}
    # As it was written: decoded, it can hold anything.
    path = bytes(request.scope.get("raw_path") or b"").decode("latin-1")
    problem = Problem(kind, f"{KINDS[kind].title}: {request.method} {path}", headers=headers)
    if path.startswith(PLANE_PATHS):
        said = "Not found" if status == 404 else "Method not allowed"
        return Problem(kind, said, headers=headers).plane_response()
    return problem.response(request.scope.get("state", {}).get("request_id", ""))


def _methods(request: Request) -> str:
    """The methods that an address takes, those of all its routes."""
    routes = [each for each in request.app.routes if isinstance(each, Route)]
    found = [each for each in routes if each.matches(request.scope)[0] is not Match.NONE]
    return ", ".join(sorted({method for each in found for method in each.methods or ()}))
