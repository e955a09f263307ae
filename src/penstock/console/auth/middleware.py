"""Middleware that requires sign-in and sets the security headers."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.console.assets import asset_url
from penstock.console.services import ConsoleServices

SIGN_IN = "/sign-in"
#: Paths that need no sign-in: they serve no data.
_PUBLIC_PATHS = (SIGN_IN, "/assets/", "/_nicegui/", "/favicon.ico")
#: NiceGUI needs inline scripts and compiles templates in the browser. All resources come from the console itself.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
]


#: Stores the browser's time zone in a cookie and loads the page again: the server formats all times.
_TIME_ZONE_PAGE = f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Penstock</title>
<script src="{asset_url("console.js")}" data-then="reload"></script></head>
<body><noscript>The console needs JavaScript.</noscript></body></html>"""


class SignInMiddleware:
    """Passes requests of signed-in browsers on, with ``request.state.viewer`` set, and redirects others to sign in."""

    def __init__(self, app: ASGIApp, console: ConsoleServices) -> None:
        self._app = app
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        connection = HTTPConnection(scope)
        if not scope["path"].startswith(_PUBLIC_PATHS):
            viewer = await self._console.find_viewer(connection.cookies)
            if viewer is None:
                await _deny(connection)(scope, receive, send_with_headers)
                return
            if _needs_time_zone(connection):
                await HTMLResponse(_TIME_ZONE_PAGE)(scope, receive, send_with_headers)
                return
            scope["state"]["viewer"] = viewer
            scope["state"]["caller"] = viewer.identity.id
        try:
            await self._app(scope, receive, send_with_headers)
        except RuntimeError as error:
            # Starlette raises this, without a class of its own, if the browser disconnects before the response.
            if str(error) != "No response returned.":
                raise


def _is_page_request(scope: Scope) -> bool:
    return scope["type"] == "http" and scope["method"] == "GET" and not scope["path"].startswith("/_")


def _needs_time_zone(connection: HTTPConnection) -> bool:
    if not _is_page_request(connection.scope):
        return False
    return "penstock_zone" not in connection.cookies and "zone" not in connection.query_params


def _deny(connection: HTTPConnection) -> Response:
    if _is_page_request(connection.scope):
        url = connection.url.path + (f"?{connection.url.query}" if connection.url.query else "")
        return RedirectResponse(f"{SIGN_IN}?{urlencode({'next': url})}", status_code=303)
    # This is also the response to a WebSocket that is refused before it is accepted.
    return Response("Sign in first", status_code=403, media_type="text/plain")
