"""Middleware for every request: request id, log line, metrics, response headers, CORS."""

from __future__ import annotations

import itertools
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.server.http.cors import OriginPolicy, cors_headers, is_preflight, preflight_response
from penstock.server.http.errors import PROBLEM_JSON, ErrorFormat, Problem, internal_problem
from penstock.server.http.json_log import RequestLog, format_timestamp
from penstock.server.metrics.counters import ServerMetrics
from penstock.server.settings import ServerSettings

logger = logging.getLogger("penstock.server")

#: Stands for an encoded slash (``%2F``) in the path during routing: it does not separate path segments. No text that
#: arrives over HTTP contains this character.
ENCODED_SLASH = "\udc2f"

#: Key in the state of a scope: a browser sent the request for a page of another site without an allowed origin.
IS_CROSS_SITE = "is_cross_site"

_VALID_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class RequestMiddleware:
    """The outermost ASGI application.

    Args:
        app: The application to wrap.
        settings: The settings of the server.
        metrics: The counters of this process.
        lifespan: Opens the resources of the application, and closes them at the end.
        find_error_format: Returns the format of errors that occur outside of a route, by path.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        metrics: ServerMetrics,
        lifespan: Callable[[object], AbstractAsyncContextManager[None]],
        find_error_format: Callable[[str], ErrorFormat] = lambda _path: PROBLEM_JSON,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._lifespan = lifespan
        self._find_error_format = find_error_format
        self._origin_policy = OriginPolicy(settings)
        self._log_level = settings.request_log
        self._log = RequestLog()
        # A request id is the random prefix of this process and a counter.
        self._id_prefix = secrets.token_hex(6)
        self._ids = itertools.count(1)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        try:
            async with self._lifespan(self):
                yield
        finally:
            self._log.flush()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        policy = self._origin_policy
        allowed_origin: bytes | None = None
        foreign_origin = given_id = None
        host, fetch_site = "", b""
        for name, value in scope["headers"]:
            if name == b"x-request-id":
                given_id = value.decode("latin-1")
            elif name == b"host":
                host = value.decode("latin-1")
            elif name == b"sec-fetch-site":
                fetch_site = value
            elif name == b"origin":
                if policy.is_allowed(value):
                    allowed_origin = value
                else:
                    foreign_origin = value.decode("latin-1")
        if given_id and _VALID_REQUEST_ID.fullmatch(given_id):
            request_id = given_id
        else:
            request_id = f"{self._id_prefix}{next(self._ids):06x}"
        state: dict[str, Any] = scope.setdefault("state", {})
        state["request_id"] = request_id
        # Browsers send this header even without an Origin: for images, links and forms.
        state[IS_CROSS_SITE] = fetch_site in (b"cross-site", b"same-site") and allowed_origin is None
        extra_headers = [(b"x-request-id", request_id.encode())]
        if policy.has_origins:
            extra_headers.append((b"vary", b"Origin"))
        if allowed_origin is not None:
            extra_headers += cors_headers(allowed_origin)
        status = sent = 0
        self._metrics.requests_in_progress.add(1)

        async def send_with_headers(message: Message) -> None:
            nonlocal status, sent
            kind = message["type"]
            if kind in ("http.response.body", "websocket.http.response.body"):
                sent += len(message.get("body", b""))
            elif kind in ("http.response.start", "websocket.http.response.start"):
                status = message["status"]
                message["headers"] = _complete_headers(message.get("headers", ()), extra_headers)
            elif kind == "websocket.accept":
                status = 101
                message["headers"] = [*message.get("headers", ()), *extra_headers]
            elif kind == "websocket.close" and not status:
                status = 403  # uvicorn sends it for a handshake that is closed
            await send(message)

        async def send_problem(problem: Problem) -> None:
            state["problem"] = problem.kind
            path = bytes(scope.get("raw_path") or b"").decode("latin-1")
            error_format = self._find_error_format(path) if scope["type"] == "http" else PROBLEM_JSON
            await error_format.render(problem, request_id)(scope, receive, send_with_headers)

        try:
            if allowed_origin is not None and is_preflight(scope):
                await preflight_response()(scope, receive, send_with_headers)
            else:
                policy.check(scope, host, foreign_origin)
                _decode_path(scope)
                await self._app(scope, receive, send_with_headers)
        except Problem as problem:
            await send_problem(problem)
        except Exception:
            logger.exception("request failed", extra={"request_id": request_id})
            if status:
                raise
            await send_problem(internal_problem())
        finally:
            self._metrics.count_response(scope, state, status, time.perf_counter() - begun)
            if self._log_level == "all" or (self._log_level == "errors" and (status >= 400 or not status)):
                self._log.write(_log_document(scope, state, status, sent, begun))


def _complete_headers(
    headers: Iterable[tuple[bytes, bytes]], extra: list[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes]]:
    """Add the common headers to those of a response. By default no cache stores a response."""
    complete = [*headers, *extra, (b"x-content-type-options", b"nosniff")]
    for name, _ in complete:
        if name == b"cache-control":
            return complete
    complete.append((b"cache-control", b"no-store"))
    return complete


def _decode_path(scope: Scope) -> None:
    """Decode the path; refuse invalid UTF-8, and keep encoded slashes inside their path segment."""
    raw: bytes = scope.get("raw_path") or b""
    if b"%" not in raw:
        return
    try:
        unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise Problem("invalid-request", "the path is not UTF-8") from None
    scope["path"] = unquote(re.sub("%2f", ENCODED_SLASH, raw.decode("ascii"), flags=re.IGNORECASE))


def _log_document(scope: Scope, state: dict[str, Any], status: int, sent: int, begun: float) -> dict[str, Any]:
    """Return the log line of a request.

    It has the route instead of the path, which can contain an event's key, and the name of the queue. Status 0 means
    that the client disconnected before the response.
    """
    document: dict[str, Any] = {
        "time": format_timestamp(time.time()),
        "level": "info" if status < 500 else "error",
        "logger": "penstock.request",
        "request_id": state["request_id"],
        "method": scope.get("method", "GET"),
        "route": state.get("route", ""),
        "status": status,
        "ms": round((time.perf_counter() - begun) * 1000, 2),
        "bytes": sent,
    }
    if caller := state.get("caller"):
        document["caller"] = caller
    if queue := scope.get("path_params", {}).get("queue"):
        document["queue"] = queue.replace(ENCODED_SLASH, "/")
    return document
