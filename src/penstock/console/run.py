"""The console's process, from its settings to its end."""

from __future__ import annotations

from collections.abc import Callable

from penstock.console.app import create_console
from penstock.console.settings import ConsoleSettings
from penstock.server.http.json_log import log_as_json
from penstock.server.http.middleware import Frame
from penstock.server.process.worker import Worker
from penstock.server.run import address, listen
from penstock.server.services import Services
from penstock.server.settings import ServerSettings

#: The largest event that somebody may edit in a browser, and what is around it.
_LONGEST_WORD = 4 << 20


def run_console(settings: ConsoleSettings, *, parent: int | None = None) -> None:
    """Serve the pages until SIGTERM or Ctrl-C, or until what is behind the pipe ``parent`` is gone."""
    with listen(settings.server) as listening:
        log_as_json(settings.server.core.log_level)

        def ready() -> None:
            print(f"Console on {address(settings.server, listening)}", flush=True)

        def create(_: ServerSettings, *, started: Callable[[Services], None] | None) -> Frame:
            return create_console(settings)

        Worker(settings.server, listening, ready, parent, create=create, longest_word=_LONGEST_WORD).run()
