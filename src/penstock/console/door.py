"""Stands before everything the console serves: who has not signed in is sent to do so."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
            scope["state"]["viewer"] = viewer
            scope["state"]["caller"] = viewer.identity.id
        await self._app(scope, receive, send_guarded)


def _refuse(connection: HTTPConnection) -> Response:
    scope = connection.scope
    if scope["type"] == "http" and scope["method"] == "GET" and not scope["path"].startswith("/_"):
        here = connection.url.path + (f"?{connection.url.query}" if connection.url.query else "")
        return RedirectResponse(f"{SIGN_IN}?{urlencode({'next': here})}", status_code=303)
    # A WebSocket that is refused before it was accepted is answered the same way.
    return Response("Sign in first", status_code=403, media_type="text/plain")
