"""The ASGI application of the console: NiceGUI behind the sign-in middleware."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI
from nicegui import Client, ui
from nicegui import app as nicegui_app
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.staticfiles import StaticFiles

from penstock.console.assets import DIRECTORY
from penstock.console.auth.middleware import SIGN_IN, SignInMiddleware
from penstock.console.auth.sign_in import SignIn
from penstock.console.layout import HEAD, PAGES, layout
from penstock.console.page import Page, View, error_message
from penstock.console.polling import EXPECTED_ERRORS
from penstock.console.services import ConsoleServices
from penstock.console.settings import ConsoleSettings
from penstock.console.widgets import elements
from penstock.server.http.json_log import configure_json_logging
from penstock.server.http.middleware import RequestMiddleware
from penstock.server.metrics.counters import ServerMetrics
from penstock.server.metrics.vitals import VitalsRecorder
from penstock.server.process.http_worker import Worker
from penstock.server.process.listener import address, listen
from penstock.server.services import Services
from penstock.server.settings import ServerSettings

logger = logging.getLogger("penstock.console")

#: Longest time to build a page: the database may be slow.
_BUILD_SECONDS = 15.0
#: Limit of a WebSocket message: the largest event that the editor accepts, with its envelope.
_MAX_MESSAGE_BYTES = 4 << 20


def create_console(settings: ConsoleSettings) -> RequestMiddleware:
    """Create the application. Its lifespan opens and closes the database."""
    console = ConsoleServices(settings)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    sign_in = SignIn(console)
    app.add_route(SIGN_IN, sign_in.show_form, methods=["GET"])
    app.add_route(SIGN_IN, sign_in.sign_in, methods=["POST"])
    app.add_route("/sign-out", sign_in.sign_out, methods=["POST"])
    app.mount("/assets", StaticFiles(directory=DIRECTORY))
    for page in PAGES:
        ui.page(page.path, title=f"{page.title} · Penstock", response_timeout=_BUILD_SECONDS)(
            _page_handler(console, page)
        )
    _register_error_pages(console)
    # Without this, Quasar shows a loading bar for each HTTP request of the browser.
    nicegui_app.config.quasar_config["loadingBar"]["skipHijack"] = True
    ui.run_with(
        app,
        title="Penstock",
        favicon=DIRECTORY / "icon.svg",
        dark=None,
        language="en-US",
        # Tailwind would compile styles in every browser; console.css has all that the pages need.
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
            recorder = VitalsRecorder(console.database, console.database_metrics)
            await stack.enter_async_context(recorder.running())
            await stack.enter_async_context(app.router.lifespan_context(app))
            yield

    return RequestMiddleware(SignInMiddleware(app, console), settings.server, ServerMetrics(), lifespan)


def _register_error_pages(console: ConsoleServices) -> None:
    async def show_not_found(request: Request, _: Exception) -> Response:
        if not hasattr(request.state, "viewer"):
            return PlainTextResponse("not found", status_code=404)
        with Client(ui.page(""), request=request) as client:
            view = View(console, request.state.viewer, request, client)
            with layout(view, "Not found"):
                elements.empty_state("Page not found", "Choose a page from the navigation.", icon="explore_off")
        return client.build_response(request, 404)

    def show_failure(error: Exception) -> None:
        if not isinstance(error, EXPECTED_ERRORS):
            logger.error("could not build a page", exc_info=error)
        ui.add_head_html(HEAD)
        with (
            elements.element("main", "ps-main ps-stack"),
            elements.empty_state("This page could not be loaded", error_message(error), icon="cloud_off"),
        ):
            elements.button("Try again", ui.navigate.reload)

    nicegui_app.exception_handler(404)(show_not_found)
    nicegui_app.on_page_exception(show_failure)


def _page_handler(console: ConsoleServices, page: Page) -> Callable[[Request], object]:
    async def show_page(request: Request) -> None:
        view = View(console, request.state.viewer, request, ui.context.client)
        with layout(view, page.title):
            if page.needs_all and not view.can_see_all:
                elements.empty_state(
                    "Not for your key",
                    "Your key is limited to some queues, and this page shows all of them.",
                    icon="lock",
                )
            else:
                await page.build(view)

    return show_page


def run_console(settings: ConsoleSettings, *, parent: int | None = None) -> None:
    """Serve the console until SIGTERM or Ctrl-C, or until the process that holds the pipe ``parent`` exits."""
    with listen(settings.server) as listening:
        configure_json_logging(settings.server.core.log_level)

        def ready() -> None:
            print(f"Console on {address(settings.server, listening)}", flush=True)

        def create(_: ServerSettings, *, on_start: Callable[[Services], None] | None) -> RequestMiddleware:
            return create_console(settings)

        Worker(settings.server, listening, ready, parent, create=create, max_message_bytes=_MAX_MESSAGE_BYTES).run()
