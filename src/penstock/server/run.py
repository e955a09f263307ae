"""A server process, from the settings to the end."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from penstock.server.app import create_app
from penstock.server.logs import log_as_json
from penstock.server.services import Services
from penstock.server.settings import ServerSettings


class _Server(uvicorn.Server):
    """Tells the application at once that it is to end: its long polls would hold up the end of the connections."""

    services: Services | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say where: with port 0 nobody else knows."""
        await super().startup(sockets)
        for listening in [each for server in self.servers for each in server.sockets][:1]:
            host, port = listening.getsockname()[:2]
            print(f"Listening on http://{host}:{port}", flush=True)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take signals while serving; one that was answered by an orderly end does not kill the process after it."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop."""
        if self.services is not None:
            self.services.stopping.set()
        super().handle_exit(sig, frame)


def serve(settings: ServerSettings) -> None:
    """Serve until SIGTERM or Ctrl-C."""

    def started(services: Services) -> None:
        server.services = services

    log_as_json(settings.core.log_level)
    app = create_app(settings, started=started)
    server = _Server(
        uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            loop="uvloop",
            http="httptools",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=30,
        )
    )
    server.run()
