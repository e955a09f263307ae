"""Stands before everything the console serves: who has not signed in is sent to do so."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.console.assets import address_of_asset
from penstock.console.console import Console

SIGN_IN = "/sign-in"
#: Nothing here tells anything about anybody's data.
_PUBLIC = (SIGN_IN, "/assets/", "/_nicegui/", "/favicon.ico")
#: The page's own code is inline and compiled in the browser; everything comes from here and goes nowhere else.
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


#: Asks for the reader's zone, in which all times are written, before the first page.
_WHERE_ARE_YOU = f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Penstock</title>
<script src="{address_of_asset("reader.js")}" data-then="come-again"></script></head>
<body><noscript>The console needs JavaScript.</noscript></body></html>"""


class Door:
    """Lets in who is known; ``request.state.viewer`` says who it is."""

    def __init__(self, app: ASGIApp, console: Console) -> None:
        self._app = app
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or not."""

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        connection = HTTPConnection(scope)
        path = scope["path"]
        if not path.startswith(_PUBLIC):
            viewer = await self._console.viewer(connection.cookies)
            if viewer is None:
                await _refuse(connection)(scope, receive, send_guarded)
                return
            if _is_first(connection):
                await HTMLResponse(_WHERE_ARE_YOU)(scope, receive, send_guarded)
                return
            scope["state"]["viewer"] = viewer
            scope["state"]["caller"] = viewer.identity.id
        try:
            await self._app(scope, receive, send_guarded)
        except RuntimeError as error:
            # What Starlette says of a browser that has gone on before the answer came.
            if str(error) != "No response returned.":
                raise


def _is_first(connection: HTTPConnection) -> bool:
    """Whether it is a page that is asked for, by a browser whose zone is not known."""
    scope = connection.scope
    if scope["type"] != "http" or scope["method"] != "GET" or scope["path"].startswith("/_"):
        return False
    return "penstock_zone" not in connection.cookies and "zone" not in connection.query_params


def _refuse(connection: HTTPConnection) -> Response:
    scope = connection.scope
    if scope["type"] == "http" and scope["method"] == "GET" and not scope["path"].startswith("/_"):
        here = connection.url.path + (f"?{connection.url.query}" if connection.url.query else "")
        return RedirectResponse(f"{SIGN_IN}?{urlencode({'next': here})}", status_code=303)
    # A WebSocket that is refused before it was accepted is answered the same way.
    return Response("Sign in first", status_code=403, media_type="text/plain")
