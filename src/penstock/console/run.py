"""The console's process, from its settings to its end."""

from __future__ import annotations

from collections.abc import Callable

from penstock.console.app import create_console
from penstock.console.settings import ConsoleSettings
from penstock.server.http.json_log import configure_json_logging
from penstock.server.http.middleware import RequestMiddleware
from penstock.server.process.listener import address, listen
from penstock.server.process.worker import Worker
from penstock.server.services import Services
from penstock.server.settings import ServerSettings

#: The largest event that somebody may edit in a browser, and what is around it.
_LONGEST_WORD = 4 << 20


def run_console(settings: ConsoleSettings, *, parent: int | None = None) -> None:
    """Serve the pages until SIGTERM or Ctrl-C, or until what is behind the pipe ``parent`` is gone."""
    with listen(settings.server) as listening:
        configure_json_logging(settings.server.core.log_level)

        def ready() -> None:
            print(f"Console on {address(settings.server, listening)}", flush=True)

        def create(_: ServerSettings, *, on_start: Callable[[Services], None] | None) -> RequestMiddleware:
            return create_console(settings)

        Worker(settings.server, listening, ready, parent, create=create, max_message_bytes=_LONGEST_WORD).run()
