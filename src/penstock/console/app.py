"""The application: NiceGUI inside, and before it who is let in."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI
from nicegui import Client, ui
from nicegui import app as nicegui_app
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.staticfiles import StaticFiles

from penstock.console.assets import DIRECTORY
from penstock.console.auth.middleware import SIGN_IN, Door
from penstock.console.auth.sign_in import SignIn
from penstock.console.console import Console
from penstock.console.layout import HEAD, shell
from penstock.console.page import Page, View, sentence
from penstock.console.polling import TROUBLES
from penstock.console.registry import PAGES
from penstock.console.settings import ConsoleSettings
from penstock.console.widgets import parts
from penstock.server.http.middleware import RequestMiddleware
from penstock.server.metrics.counters import ServerMetrics

logger = logging.getLogger("penstock.console")

#: How long a page may take to be built; the database may be slow.
_BUILD_SECONDS = 15.0


def create_console(settings: ConsoleSettings, *, pages: Sequence[Page] = PAGES) -> RequestMiddleware:
    """The application of the console's process; it opens the database when it starts and closes it when it ends."""
    console = Console(settings)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    sign_in = SignIn(console)
    app.add_route(SIGN_IN, sign_in.ask, methods=["GET"])
    app.add_route(SIGN_IN, sign_in.sign_in, methods=["POST"])
    app.add_route("/sign-out", sign_in.sign_out, methods=["POST"])
    app.mount("/assets", StaticFiles(directory=DIRECTORY))
    for page in pages:
        ui.page(page.path, title=f"{page.title} · Penstock", response_timeout=_BUILD_SECONDS)(
            _built(console, page, pages)
        )
    _answer_the_lost(console, pages)
    # A bar that runs along the top for each request of the browser's, of which there are hardly any.
    nicegui_app.config.quasar_config["loadingBar"]["skipHijack"] = True
    ui.run_with(
        app,
        title="Penstock",
        favicon=DIRECTORY / "icon.svg",
        dark=None,
        language="en-US",
        # A compiler of styles in every browser would cost more than the pages do; ours are in look.css.
        tailwind=False,
        binding_refresh_interval=None,
        show_welcome_message=False,
        reconnect_timeout=10.0,
    )

    @asynccontextmanager
    async def lifespan(_app: object) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await console.log.open()
            stack.push_async_callback(console.log.close)
            if console.authenticator is not None:
                await stack.enter_async_context(console.authenticator.running())
            await stack.enter_async_context(app.router.lifespan_context(app))
            yield

    return RequestMiddleware(Door(app, console), settings.server, ServerMetrics(), lifespan)


def _answer_the_lost(console: Console, pages: Sequence[Page]) -> None:
    """What is shown in place of a page that is not there, or that could not be made."""

    async def nowhere(view: View) -> None:
        parts.nothing("There is no such page", "The navigation leads to those there are.", icon="explore_off")

    async def no_such_page(request: Request, _: Exception) -> Response:
        if not hasattr(request.state, "viewer"):
            return PlainTextResponse("not found", status_code=404)
        lost = Page("", "Not found", "explore_off", nowhere)
        with Client(ui.page(""), request=request) as client:
            view = View(console, request.state.viewer, request, client)
            with shell(view, lost, pages):
                await lost.build(view)
        return client.build_response(request, 404)

    def not_made(error: Exception) -> None:
        if not isinstance(error, TROUBLES):
            logger.error("a page could not be made", exc_info=error)
        ui.add_head_html(HEAD)
        with (
            parts.element("main", "ps-main"),
            parts.empty("This page could not be made", sentence(error), icon="cloud_off"),
        ):
            parts.button("Try again", ui.navigate.reload)

    nicegui_app.exception_handler(404)(no_such_page)
    nicegui_app.on_page_exception(not_made)


def _built(console: Console, page: Page, pages: Sequence[Page]) -> Callable[[Request], object]:
    async def show(request: Request) -> None:
        view = View(console, request.state.viewer, request, ui.context.client)
        with shell(view, page, pages):
            if page.needs_all and not view.sees_all:
                parts.nothing(
                    "Not for your key", "It is for some queues, and this page is about all of them.", icon="lock"
                )
            else:
                await page.build(view)

    return show
