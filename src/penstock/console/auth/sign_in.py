"""Signing in with an API key, and out: two forms that need no script."""

from __future__ import annotations

from html import escape
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from penstock.console.assets import address_of_asset
from penstock.console.auth.middleware import SIGN_IN
from penstock.console.auth.sessions import COOKIE, LASTS_SECONDS
from penstock.console.console import Console
from penstock.server.auth.authorize import client_address
from penstock.server.auth.identity import Role
from penstock.server.auth.key_format import parse_key
from penstock.server.http.errors import Problem

_LONGEST_FORM = 8192
#: Who may only push, or only consume, has nothing to look at.
LOOKERS = frozenset({Role.READ, Role.ADMIN})

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in · Penstock</title>
<link rel="icon" href="{icon}">
<link rel="stylesheet" href="{look}">
<script src="{script}"></script>
</head>
<body class="ps-door">
<main class="ps-door-card">
<img src="{icon}" alt="" width="36" height="36">
<h1>Penstock</h1>
<p class="ps-muted">Sign in with an API key that may read.</p>
<form method="post" action="{action}">
<input type="hidden" name="next" value="{next}">
<label for="key">API key</label>
<input id="key" name="key" type="password" autocomplete="current-password" spellcheck="false" required autofocus
 placeholder="penstock_…"{described}>
{trouble}
<button type="submit">Sign in</button>
</form>
<details>
<summary>No key yet?</summary>
<p>Whoever runs Penstock makes one on the command line:</p>
<pre><code>penstock key create me --role admin</code></pre>
<p class="ps-muted">The role <code>read</code> looks at everything and changes nothing.</p>
</details>
</main>
</body>
</html>
"""


class SignIn:
    """The two forms."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def ask(self, request: Request) -> Response:
        """The form, or the console for who need not fill it in."""
        if await self._console.viewer(request.cookies) is not None:
            return RedirectResponse("/", status_code=303)
        return _form(_inside(request.query_params.get("next")))

    async def sign_in(self, request: Request) -> Response:
        """Look at the key, and let its owner in."""
        guard = self._console.authenticator
        if guard is None:
            return RedirectResponse("/", status_code=303)
        given = await _form_of(request)
        onward = _inside(given.get("next"))
        text = given.get("key", "").strip()
        key = parse_key(text)
        if key is None:
            return _form(onward, "That is no API key of Penstock: they begin with penstock_.", 401)
        try:
            headers = [(b"x-api-key", text.encode("ascii"))]
            request_id = request.scope["state"].get("request_id", "")
            identity = await guard.authenticate(headers, client_address(request), "console sign-in", request_id)
        except Problem as problem:
            return _form(onward, f"{problem.detail}.", problem.status)
        if not identity.has_role(LOOKERS):
            return _form(onward, "This key may not read: the console needs the role read or admin.", 403)
        answer = RedirectResponse(onward, status_code=303)
        answer.set_cookie(
            COOKIE,
            self._console.sessions.begin(key),
            max_age=LASTS_SECONDS,
            httponly=True,
            samesite="lax",
            secure=request.url.scheme == "https",
        )
        return answer

    async def sign_out(self, request: Request) -> Response:
        """End the session."""
        viewer = getattr(request.state, "viewer", None)
        if viewer is not None and viewer.session is not None:
            self._console.sessions.end(viewer.session)
        answer = RedirectResponse(SIGN_IN, status_code=303)
        answer.delete_cookie(COOKIE)
        return answer


async def _form_of(request: Request) -> dict[str, str]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LONGEST_FORM:
            return {}
    return {name: values[-1] for name, values in parse_qs(body.decode("latin-1")).items()}


def _inside(path: str | None) -> str:
    """Where to go on, if that is a page of ours: a link must not lead somebody who signs in to another site."""
    safe = path is not None and path.startswith("/") and not path.startswith(("//", "/\\", SIGN_IN))
    return path if safe and path is not None and path.isprintable() else "/"


def _form(onward: str, trouble: str = "", status: int = 200) -> Response:
    said = f'<p id="trouble" class="ps-trouble" role="alert">{escape(trouble)}</p>' if trouble else ""
    page = _PAGE.format(
        icon=address_of_asset("icon.svg"),
        look=address_of_asset("look.css"),
        script=address_of_asset("reader.js"),
        action=SIGN_IN,
        next=escape(onward),
        trouble=said,
        described=' aria-describedby="trouble" aria-invalid="true"' if trouble else "",
    )
    return HTMLResponse(page, status_code=status)
