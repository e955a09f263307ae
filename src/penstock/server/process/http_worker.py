"""A worker process: serves HTTP on a listening socket."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
import uvloop

from penstock.core.errors import ConfigurationError
from penstock.server.app import create_app
from penstock.server.http.middleware import RequestMiddleware
from penstock.server.http.uvicorn_protocol import HttpConnection, LimitedConfig, WebSocketConnection, enforce_timeouts
from penstock.server.services import Services
from penstock.server.settings import ServerSettings

_MIN_DATABASE_CONNECTIONS = 3
_MAX_MESSAGE_BYTES = 64 << 10


class Worker:
    """Serves HTTP until it is told to stop.

    Args:
        settings: The settings of the server.
        listening: The listening socket.
        on_ready: Called when the worker accepts requests.
        parent: The read end of a pipe whose write end the supervisor holds. The worker stops when the supervisor dies.
            With a supervisor, the worker handles SIGTERM only: the supervisor handles Ctrl-C and kills workers.
        create: Creates the application, with the arguments of :func:`create_app`.
        max_message_bytes: The largest WebSocket message from a client.
    """

    def __init__(
        self,
        settings: ServerSettings,
        listening: socket.socket,
        on_ready: Callable[[], None],
        parent: int | None = None,
        *,
        create: Callable[..., RequestMiddleware] = create_app,
        max_message_bytes: int = _MAX_MESSAGE_BYTES,
    ) -> None:
        self._settings = _divide_limits(settings)
        self._create = create
        self._max_message_bytes = max_message_bytes
        self._listening = listening
        self._on_ready = on_ready
        self._parent = parent

    def run(self) -> None:
        app = self._create(self._settings, on_start=self._set_services)
        self._server = _Server(self._create_config(app), self._on_ready, is_supervised=self._parent is not None)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(app.running()))

    def _set_services(self, services: Services) -> None:
        self._server.services = services

    async def _serve(self, running: contextlib.AbstractAsyncContextManager[None]) -> None:
        if self._parent is not None:
            asyncio.get_running_loop().add_reader(self._parent, self._stop_without_parent)
        async with running:
            timeouts = asyncio.create_task(enforce_timeouts(self._server.server_state.connections))
            try:
                await self._server.serve(sockets=[self._listening])
            finally:
                timeouts.cancel()

    def _stop_without_parent(self) -> None:
        if self._parent is not None:
            asyncio.get_running_loop().remove_reader(self._parent)
            self._server.stop()

    def _create_config(self, app: object) -> LimitedConfig:
        settings = self._settings
        config = LimitedConfig(
            app,
            http=HttpConnection,
            ws=WebSocketConnection,
            ws_max_size=self._max_message_bytes,
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=list(settings.trusted_proxies),
            timeout_keep_alive=settings.idle_seconds,
            timeout_graceful_shutdown=settings.stop_seconds,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
            settings=settings,
        )
        # uvicorn's warnings are about mistakes of clients, which get a response.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"cannot use the certificate {settings.tls_cert} with the key {settings.tls_key}: {error.strerror}"
            ) from None
        return config


class _Server(uvicorn.Server):
    """uvicorn's server. It tells the application to stop first, because long polls would keep connections open."""

    services: Services | None = None

    def __init__(self, config: LimitedConfig, on_ready: Callable[[], None], *, is_supervised: bool) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._is_supervised = is_supervised

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve, and report it."""
        await super().startup(sockets)
        self._on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while serving. uvicorn raises them again afterwards; a graceful stop needs none."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop gracefully; at the second signal, exit at once."""
        if self._is_supervised:
            if sig == signal.SIGTERM:
                self.stop()
        elif self.should_exit:
            os._exit(1)
        else:
            self.stop()

    def stop(self) -> None:
        if self.services is not None:
            self.services.stopping.set()
        self.should_exit = True


def _divide_limits(settings: ServerSettings) -> ServerSettings:
    """Return the settings of one worker: its part of the connections of all workers."""
    if settings.workers == 1:
        return settings
    pool = max(_MIN_DATABASE_CONNECTIONS, -(-settings.core.pool_size // settings.workers))
    return dataclasses.replace(
        settings,
        core=dataclasses.replace(settings.core, pool_size=min(pool, settings.core.pool_size)),
        max_connections=-(-settings.max_connections // settings.workers),
    )
