"""Main function of the console's process."""

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

#: Limit of a WebSocket message: the largest event that the editor accepts, with its envelope.
_MAX_MESSAGE_BYTES = 4 << 20


def run_console(settings: ConsoleSettings, *, parent: int | None = None) -> None:
    """Serve the console until SIGTERM or Ctrl-C, or until the process that holds the pipe ``parent`` exits."""
    with listen(settings.server) as listening:
        configure_json_logging(settings.server.core.log_level)

        def ready() -> None:
            print(f"Console on {address(settings.server, listening)}", flush=True)

        def create(_: ServerSettings, *, on_start: Callable[[Services], None] | None) -> RequestMiddleware:
            return create_console(settings)

        Worker(settings.server, listening, ready, parent, create=create, max_message_bytes=_MAX_MESSAGE_BYTES).run()
