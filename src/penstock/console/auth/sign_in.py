"""Sign-in with an API key or a bearer token, and sign-out. Both work without JavaScript."""

from __future__ import annotations

from html import escape
from urllib.parse import parse_qs

import jwt
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from penstock.console.assets import asset_url
from penstock.console.auth.middleware import SIGN_IN
from penstock.console.auth.sessions import COOKIE, SESSION_SECONDS
from penstock.console.services import ConsoleServices
from penstock.server.auth.authorize import client_address
from penstock.server.auth.identity import Role
from penstock.server.auth.key_format import parse_key
from penstock.server.http.errors import Problem

_MAX_FORM_BYTES = 16 << 10
#: Browsers ignore cookies with more than 4,096 bytes, name and attributes included.
_MAX_COOKIE_LENGTH = 3900
#: A key or token needs one of these roles to sign in.
CONSOLE_ROLES = frozenset({Role.READ, Role.ADMIN})

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in · Penstock</title>
<link rel="icon" href="{icon}">
<link rel="stylesheet" href="{styles}">
<script src="{script}"></script>
</head>
<body class="ps-sign-in">
<main class="ps-card ps-stack">
<img src="{icon}" alt="" width="36" height="36">
<h1>Penstock</h1>
<p class="ps-muted">Sign in with {credential} that has the role read or admin.</p>
<form class="ps-stack" method="post" action="{action}">
<input type="hidden" name="next" value="{next}">
<label class="ps-field ps-stack">{label}
<input name="key" type="password" autocomplete="current-password" spellcheck="false" required autofocus
 placeholder="{placeholder}"{described}></label>
{error}
<button class="ps-button ps-button-primary" type="submit">Sign in</button>
</form>
<details>
<summary>No key yet?</summary>
<p>An operator creates one on the command line:</p>
<pre class="ps-code-block">penstock key create me --role admin</pre>
<p class="ps-muted">The role <code>read</code> can see everything and change nothing.</p>
</details>
</main>
</body>
</html>
"""


class SignIn:
    """The handlers of the sign-in and sign-out forms."""

    def __init__(self, console: ConsoleServices) -> None:
        self._console = console
        server = console.settings.server
        self._accepts_tokens = server.jwt_jwks is not None or server.jwt_secret_file is not None

    async def show_form(self, request: Request) -> Response:
        if await self._console.find_viewer(request.cookies) is not None:
            return RedirectResponse("/", status_code=303)
        return self._render_form(_local_path(request.query_params.get("next")))

    async def sign_in(self, request: Request) -> Response:
        authenticator = self._console.authenticator
        if authenticator is None:
            return RedirectResponse("/", status_code=303)
        form = await _read_form(request)
        target = _local_path(form.get("next"))
        text = form.get("key", "").strip()
        key = parse_key(text)
        if key is None and not self._accepts_tokens:
            return self._render_form(target, "This is no API key of Penstock: API keys begin with penstock_.", 401)
        try:
            headers = [(b"x-api-key", text.encode())]
            request_id = request.scope["state"].get("request_id", "")
            identity = await authenticator.authenticate(headers, client_address(request), "console sign-in", request_id)
        except Problem as problem:
            return self._render_form(target, f"{problem.detail}.", problem.status)
        if not identity.has_role(CONSOLE_ROLES):
            kind = "token" if key is None else "key"
            return self._render_form(
                target, f"This {kind} may not read: the console needs the role read or admin.", 403
            )
        sessions = self._console.sessions
        cookie = sessions.create_for_token(identity, _expiry(text)) if key is None else sessions.create(key)
        if len(cookie) > _MAX_COOKIE_LENGTH:
            return self._render_form(target, "This token names too many queues for a cookie: use patterns.", 403)
        response = RedirectResponse(target, status_code=303)
        response.set_cookie(
            COOKIE,
            cookie,
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="lax",
            secure=request.url.scheme == "https",
        )
        return response

    async def sign_out(self, request: Request) -> Response:
        viewer = getattr(request.state, "viewer", None)
        if viewer is not None and viewer.session is not None:
            self._console.sessions.end(viewer.session)
        response = RedirectResponse(SIGN_IN, status_code=303)
        response.delete_cookie(COOKIE)
        return response

    def _render_form(self, target: str, error: str = "", status: int = 200) -> Response:
        credential, label, placeholder = (
            ("an API key or a bearer token (JWT)", "API key or token", "")
            if self._accepts_tokens
            else ("an API key", "API key", "penstock_…")
        )
        page = _PAGE.format(
            icon=asset_url("icon.svg"),
            styles=asset_url("console.css"),
            script=asset_url("console.js"),
            action=SIGN_IN,
            credential=credential,
            label=label,
            placeholder=placeholder,
            next=escape(target),
            error=f'<p id="error" class="ps-field-error" role="alert">{escape(error)}</p>' if error else "",
            described=' aria-describedby="error" aria-invalid="true"' if error else "",
        )
        return HTMLResponse(page, status_code=status)


async def _read_form(request: Request) -> dict[str, str]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MAX_FORM_BYTES:
            return {}
    return {name: values[-1] for name, values in parse_qs(body.decode("latin-1")).items()}


def _local_path(path: str | None) -> str:
    """Return ``path`` if it is a page of the console, else "/": sign-in must not redirect to another site."""
    if path is None or not path.startswith("/") or path.startswith(("//", "/\\", SIGN_IN)):
        return "/"
    return path if path.isprintable() else "/"


def _expiry(token: str) -> float:
    """Return when a verified token expires."""
    return float(jwt.decode(token, options={"verify_signature": False})["exp"])
