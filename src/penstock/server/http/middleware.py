"""What is the same for every request, whatever it asks for: its id, its line in the log, headers, CORS."""

from __future__ import annotations

import ipaddress
import itertools
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.server.http.errors import PLANE_PATHS, Problem
from penstock.server.http.json_log import RequestLog, timestamp
from penstock.server.metrics.counters import Instruments
from penstock.server.settings import ServerSettings

logger = logging.getLogger("penstock.server")

#: A slash inside a part of the path (``%2F``) while it is routed: it separates nothing, and no text that arrives over
#: HTTP holds this character.
SLASH = "\udc2f"

#: In a request's state: a browser asks, for a page of another site that is not among those that may call.
IS_FOREIGN = "is_foreign"

_SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_PORT = re.compile(r":\d+$")
_LOOPBACK = frozenset({"localhost"})
_CORS_METHODS = "GET, POST, PUT, PATCH, DELETE"
_CORS_HEADERS = "Authorization, Content-Type, Content-Encoding, Idempotency-Key, Last-Event-ID, X-API-Key, X-Request-Id"
_CORS_EXPOSED = "Retry-After, RateLimit, RateLimit-Policy, X-Request-Id"
_CORS_SECONDS = "600"


class Frame:
    """Wraps the application; plain ASGI, because every request goes through it."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        metrics: Instruments,
        lifespan: Callable[[object], AbstractAsyncContextManager[None]],
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._lifespan = lifespan
        self._hosts = None if settings.is_guarded else _LOOPBACK | frozenset(settings.allowed_hosts)
        self._origins = frozenset(origin.encode() for origin in settings.cors_origins)
        self._logged = settings.request_log
        self._lines = RequestLog()
        # Unique by the process's part, in order by the count.
        self._ids = itertools.count(1)
        self._prefix = secrets.token_hex(6)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open what the application needs, and close it at the end."""
        try:
            async with self._lifespan(self):
                yield
        finally:
            self._lines.flush()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        origin = asked = foreign = None
        host, site = "", b""
        for name, value in scope["headers"]:
            if name == b"x-request-id":
                asked = value.decode("latin-1")
            elif name == b"host":
                host = value.decode("latin-1")
            elif name == b"sec-fetch-site":
                site = value
            elif name == b"origin":
                if value in self._origins:
                    origin = value
                else:
                    foreign = value.decode("latin-1")
        request_id = asked if asked and _SANE_ID.fullmatch(asked) else f"{self._prefix}{next(self._ids):06x}"
        state: dict[str, Any] = scope.setdefault("state", {})
        state["request_id"] = request_id
        # What browsers say themselves, also where they name no origin: an image, a link, a form.
        state[IS_FOREIGN] = site in (b"cross-site", b"same-site") and origin is None
        extra = [(b"x-request-id", request_id.encode())]
        if self._origins:
            extra.append((b"vary", b"Origin"))
        if origin is not None:
            extra.append((b"access-control-allow-origin", origin))
            extra.append((b"access-control-expose-headers", _CORS_EXPOSED.encode()))
        status = sent = 0
        self._metrics.began()

        async def send_framed(message: Message) -> None:
            nonlocal status, sent
            kind = message["type"]
            if kind in ("http.response.body", "websocket.http.response.body"):
                sent += len(message.get("body", b""))
            elif kind in ("http.response.start", "websocket.http.response.start"):
                status = message["status"]
                message["headers"] = _with(message.get("headers", ()), extra)
            elif kind == "websocket.accept":
                status = 101
                message["headers"] = [*message.get("headers", ()), *extra]
            elif kind == "websocket.close" and not status:
                status = 403  # what a server says to a handshake that is refused
            await send(message)

        try:
            if origin is not None and scope["type"] == "http" and _is_preflight(scope):
                await _allow(send_framed)
            else:
                if foreign is not None or self._hosts is not None:
                    self._refuse_strange_pages(scope, host, foreign)
                _decode_path(scope)
                await self._app(scope, receive, send_framed)
        except Problem as problem:
            state["problem"] = problem.kind
            await _refusal(scope, problem, request_id)(scope, receive, send_framed)
        except Exception:
            logger.exception("request failed", extra={"request_id": request_id})
            if status:
                raise
            state["problem"] = "internal"
            failed = Problem("internal", "the server failed; its log says more, under the request's id")
            await _refusal(scope, failed, request_id)(scope, receive, send_framed)
        finally:
            self._metrics.answered(scope, state, status, time.perf_counter() - begun)
            if self._logged == "all" or (self._logged == "errors" and (status >= 400 or not status)):
                self._lines.write(_line(scope, state, status, sent, begun))

    def _refuse_strange_pages(self, scope: Scope, host: str, foreign: str | None) -> None:
        """Keep pages that a browser shows from using a server that it can reach.

        A page may send what it likes to any address, only not read the answer: so nothing is done for an origin that
        is not named. And it may have its own name point to this machine: so where no key protects the server, it
        answers to this machine's names only.
        """
        name = _PORT.sub("", host).lower()
        if self._hosts is not None and host and name not in self._hosts and not _is_loopback(name):
            raise Problem(
                "misdirected", f"this server is not {name}: PENSTOCK_ALLOWED_HOSTS names those it answers for"
            )
        changes = scope["type"] == "websocket" or scope["method"] not in ("GET", "HEAD", "OPTIONS")
        if foreign is not None and changes and foreign.partition("://")[2].lower() != host.lower():
            raise Problem("forbidden", "pages of this origin may not call: --cors-origin names those that may")


@lru_cache(256)
def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _with(headers: Any, extra: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of an answer and ours; data is for who asked, so it is kept nowhere on the way."""
    merged = [*headers, *extra, (b"x-content-type-options", b"nosniff")]
    for name, _ in merged:
        if name == b"cache-control":
            return merged
    merged.append((b"cache-control", b"no-store"))
    return merged


def _decode_path(scope: Scope) -> None:
    """Read the path strictly: what is no UTF-8 is refused, and a slash that was encoded separates nothing."""
    raw: bytes = scope.get("raw_path") or b""
    if b"%" not in raw:
        return
    try:
        unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise Problem("invalid-request", "the path is not UTF-8") from None
    scope["path"] = unquote(re.sub("%2f", SLASH, raw.decode("ascii"), flags=re.IGNORECASE))


def _refusal(scope: Scope, problem: Problem, request_id: str) -> Response:
    """A problem in the shape of the plane whose address was asked for."""
    raw = bytes(scope.get("raw_path") or b"").decode("latin-1")
    is_plane = scope["type"] == "http" and raw.startswith(PLANE_PATHS)
    return problem.plane_response() if is_plane else problem.response(request_id)


def _is_preflight(scope: Scope) -> bool:
    return scope["method"] == "OPTIONS" and any(
        name == b"access-control-request-method" for name, _ in scope["headers"]
    )


async def _allow(send: Send) -> None:
    headers = [
        (b"access-control-allow-methods", _CORS_METHODS.encode()),
        (b"access-control-allow-headers", _CORS_HEADERS.encode()),
        (b"access-control-max-age", _CORS_SECONDS.encode()),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _line(scope: Scope, state: dict[str, Any], status: int, sent: int, begun: float) -> dict[str, Any]:
    """A request as the log has it.

    The route and not the path, which can hold an event's key; of the names in it only the queue's. Status 0 is a
    caller who left before the answer.
    """
    line: dict[str, Any] = {
        "time": timestamp(time.time()),
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
        line["caller"] = caller
    if queue := scope.get("path_params", {}).get("queue"):
        line["queue"] = queue.replace(SLASH, "/")
    return line
