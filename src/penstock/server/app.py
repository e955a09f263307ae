"""The ASGI application of the server, with all its routes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route, Router, WebSocketRoute
from starlette.types import Receive, Scope, Send

from penstock.core.clock import Clock
from penstock.db.pool import Database
from penstock.log.log import Log
from penstock.server.api import (
    api_keys,
    consume,
    coordination,
    dead_letters,
    events,
    gates,
    groups,
    health_probes,
    live,
    metrics,
    push,
    queries,
    queues,
    rules,
)
from penstock.server.auth.authenticate import Authenticator
from penstock.server.http.errors import PROBLEM_JSON, PROBLEM_KINDS, ErrorFormat, Problem
from penstock.server.http.middleware import RequestMiddleware
from penstock.server.http.tracing import TracingMiddleware, create_tracing
from penstock.server.ingest import queue_push
from penstock.server.metrics.counters import ServerMetrics
from penstock.server.metrics.vitals import VitalsRecorder
from penstock.server.queen import routes as queen
from penstock.server.routing import openapi
from penstock.server.routing.dispatch import EndpointDispatcher
from penstock.server.routing.endpoint import Endpoint
from penstock.server.routing.openapi import render_document
from penstock.server.routing.websocket import WebSocketDispatcher
from penstock.server.services import Services
from penstock.server.settings import ServerSettings

#: All endpoints. Routes are matched in this order, so the most frequent ones come first.
ENDPOINTS: tuple[Endpoint, ...] = (
    *queue_push.routes,
    *queen.ENDPOINTS,
    *consume.routes,
    *push.routes,
    *events.routes,
    *queues.routes,
    *groups.routes,
    *coordination.routes,
    *dead_letters.routes,
    *health_probes.routes,
    *openapi.routes,
    *metrics.routes,
    *live.routes,
    *queries.routes,
    *gates.routes,
    *rules.routes,
    *api_keys.routes,
)

_PROBLEMS_BY_STATUS = {404: "no-such-route", 405: "method-not-allowed"}


def create_app(
    settings: ServerSettings,
    *,
    endpoints: Sequence[Endpoint] = ENDPOINTS,
    on_start: Callable[[Services], None] | None = None,
    clock: Clock | None = None,
) -> RequestMiddleware:
    """Create the application of one server process. Its lifespan opens and closes the database."""
    server_metrics = ServerMetrics(settings.metrics_dir)
    tracing = create_tracing(settings)
    database = Database(settings.core)
    services = Services(
        settings,
        _create_log(database, clock, server_metrics, tracing),
        Authenticator(settings, database) if settings.has_access_control else None,
        server_metrics,
        cache(lambda: render_document(endpoints)),
    )

    @asynccontextmanager
    async def lifespan(_app: object) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.callback(server_metrics.close)
            if tracing is not None:
                stack.callback(tracing.close)
            await services.log.open()
            stack.push_async_callback(services.log.close)
            if services.authenticator is not None:
                await stack.enter_async_context(services.authenticator.running())
            recorder = VitalsRecorder(database, services.database_metrics, settings.metrics_dir)
            await stack.enter_async_context(recorder.running())
            stack.callback(services.stopping.set)
            if on_start is not None:
                on_start(services)
            yield

    app = _RoutedApp(_create_routes(endpoints, services))
    if tracing is not None:
        tracing.app = app
    return RequestMiddleware(tracing or app, settings, server_metrics, lifespan, _find_error_format)


class _RoutedApp:
    """Starlette's router without the middleware of a Starlette application, which RequestMiddleware replaces."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self.routes = routes
        # No redirects: they would be built from the Host header, which the client controls.
        self._router = Router(routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        try:
            await self._router(scope, receive, send)
        except HTTPException as error:
            response = _unrouted_response(Request(scope), error.status_code)
            await response(scope, receive, send)


def _create_log(
    database: Database, clock: Clock | None, server_metrics: ServerMetrics, tracing: TracingMiddleware | None
) -> Log:
    if tracing is None:
        return Log(database, clock=clock, committed=server_metrics.commits.observe)

    def on_commit(seconds: float) -> None:
        server_metrics.commits.observe(seconds)
        tracing.record_commit(seconds)

    return Log(database, clock=clock, committed=on_commit, stamp=tracing.trace_headers)


def _create_routes(endpoints: Sequence[Endpoint], services: Services) -> list[BaseRoute]:
    routes: list[BaseRoute] = []
    for endpoint in endpoints:
        if endpoint.is_websocket:
            routes.append(WebSocketRoute(endpoint.path, WebSocketDispatcher(endpoint, services)))
            continue
        dispatcher = EndpointDispatcher(endpoint, services)
        route = Route(endpoint.path, dispatcher, methods=[endpoint.method], include_in_schema=False)
        if endpoint.has_side_effects and route.methods is not None:
            # Starlette adds HEAD to GET. A client that sends HEAD would lose what the response contains.
            route.methods.discard("HEAD")
        routes.append(route)
    return routes


def _unrouted_response(request: Request, status: int) -> Response:
    """Return the response for a request that no route handles."""
    kind = _PROBLEMS_BY_STATUS.get(status, "internal")
    request.scope["state"]["problem"] = kind
    headers = {"Allow": _allowed_methods(request)} if status == 405 else {}
    # The raw path is printable; the decoded one can contain any character.
    path = bytes(request.scope.get("raw_path") or b"").decode("latin-1")
    problem = Problem(kind, f"{PROBLEM_KINDS[kind].title}: {request.method} {path}", headers=headers)
    return _find_error_format(path).render(problem, request.scope.get("state", {}).get("request_id", ""))


def _find_error_format(path: str) -> ErrorFormat:
    """Return the error format for a path that no route handles."""
    return queen.ERRORS if path.startswith(queen.PATHS) else PROBLEM_JSON


def _allowed_methods(request: Request) -> str:
    """Return the methods of all routes of an address."""
    matching = []
    for route in request.app.routes:
        if isinstance(route, Route):
            match, _ = route.matches(request.scope)
            if match is not Match.NONE:
                matching.append(route)
    return ", ".join(sorted({method for route in matching for method in route.methods or ()}))
