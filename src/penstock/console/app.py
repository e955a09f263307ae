"""The application: NiceGUI inside, and before it who is let in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI
from nicegui import ui
from starlette.requests import Request
from starlette.staticfiles import StaticFiles

from penstock.console.assets import DIRECTORY
from penstock.console.console import Console
from penstock.console.door import SIGN_IN, Door
from penstock.console.page import Page, View
from penstock.console.registry import PAGES
from penstock.console.settings import ConsoleSettings
from penstock.console.shell import shell
from penstock.console.sign_in import SignIn
from penstock.server.frame import Frame
from penstock.server.metrics.instruments import Instruments

#: How long a page may take to be built; the database may be slow.
_BUILD_SECONDS = 15.0


def create_console(settings: ConsoleSettings, *, pages: Sequence[Page] = PAGES) -> Frame:
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
            if console.guard is not None:
                await stack.enter_async_context(console.guard.running())
            await stack.enter_async_context(app.router.lifespan_context(app))
            yield

    return Frame(Door(app, console), settings.server, Instruments(), lifespan)


def _built(console: Console, page: Page, pages: Sequence[Page]) -> Callable[[Request], object]:
    async def show(request: Request) -> None:
        view = View(console, request.state.viewer, request, ui.context.client)
        with shell(view, page, pages):
            await page.build(view)

    return show
