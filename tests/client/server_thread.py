"""A server in a thread of the test process, with a clock that the test can move."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from penstock.core.clock import Clock
from penstock.core.settings import Settings
from penstock.server.app import create_app
from penstock.server.services import Services
from penstock.server.settings import ServerSettings
from tests.client.conditions import TIMEOUT_SECONDS


class _Server(uvicorn.Server):
    """uvicorn's server, which stops without uvicorn's pauses of up to 0.2 seconds."""

    stopping: asyncio.Event

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - nothing notifies
                await asyncio.sleep(0.001)


@contextmanager
def serve_in_thread(database_url: str, clock: Clock | None = None, *, require_access: bool = False) -> Iterator[str]:
    """Run a server for a database and yield its url."""
    settings = ServerSettings(Settings(database_url), request_log="none", require_access=require_access)
    services: list[Services] = []
    app = create_app(settings, on_start=services.append, clock=clock)
    server = _Server(uvicorn.Config(app, lifespan="off", access_log=False, log_config=None))
    ready = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    def stop() -> None:
        services[0].stopping.set()
        server.stopping.set()

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        server.stopping = asyncio.Event()
        async with app.running():
            ready.set()
            await server.serve(sockets=[listener])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=asyncio.run, args=[serve()], daemon=True)
        thread.start()
        assert ready.wait(TIMEOUT_SECONDS)
        host, port = listener.getsockname()
        try:
            yield f"http://{host}:{port}"
        finally:
            loops[0].call_soon_threadsafe(stop)
            thread.join(TIMEOUT_SECONDS)
