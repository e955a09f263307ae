"""A process that answers requests."""

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
from typing import Protocol

import uvicorn
import uvloop

from penstock.core.errors import ConfigurationError
from penstock.server.app import create_app
from penstock.server.http.middleware import Frame
from penstock.server.http.protocol import Connection, Conversation, LimitedConfig, Limits, look_at
from penstock.server.services import Services
from penstock.server.settings import ServerSettings

_LONGEST_HEAD_SECONDS = 10.0
_FEWEST_DATABASE_CONNECTIONS = 3
#: What a subscriber may say over a WebSocket: filters and the like.
_LONGEST_WORD = 64 << 10


class Create(Protocol):
    """Makes the application of a process, which says when it has started what the process is to stop."""

    def __call__(self, settings: ServerSettings, /, *, started: Callable[[Services], None] | None) -> Frame:
        """Make it."""
        ...


class Worker:
    """Answers requests that arrive at a port.

    ``parent`` is the end of a pipe that a supervisor holds: when that is gone, so is this process. With a supervisor,
    signals for all processes at once are the supervisor's to read: only SIGTERM ends a worker, and only he ends one
    hard. ``create`` makes the application, and ``longest_word`` is what may come over a WebSocket in one message.
    """

    def __init__(
        self,
        settings: ServerSettings,
        listening: socket.socket,
        ready: Callable[[], None],
        parent: int | None = None,
        *,
        create: Create = create_app,
        longest_word: int = _LONGEST_WORD,
    ) -> None:
        self._settings = _share(settings)
        self._create = create
        self._longest_word = longest_word
        self._listening = listening
        self._ready = ready
        self._parent = parent

    def run(self) -> None:
        """Answer until told to stop."""
        app = self._create(self._settings, started=self._started)
        self._server = _Server(self._config(app), self._ready, is_alone=self._parent is None)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._run(app.running()))

    def _started(self, services: Services) -> None:
        self._server.services = services

    async def _run(self, running: contextlib.AbstractAsyncContextManager[None]) -> None:
        if self._parent is not None:
            asyncio.get_running_loop().add_reader(self._parent, self._orphaned)
        async with running:
            looking = asyncio.create_task(look_at(self._server.server_state.connections))
            try:
                await self._server.serve(sockets=[self._listening])
            finally:
                looking.cancel()

    def _orphaned(self) -> None:
        if self._parent is not None:
            asyncio.get_running_loop().remove_reader(self._parent)
            self._server.stop()

    def _config(self, app: object) -> LimitedConfig:
        settings = self._settings
        config = LimitedConfig(
            app,
            http=Connection,
            ws=Conversation,
            ws_max_size=self._longest_word,
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
            limits=Limits(
                settings.max_connections, min(settings.request_seconds, _LONGEST_HEAD_SECONDS), settings.idle_seconds
            ),
        )
        # What it has to say about a caller's mistakes is for the caller.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"the certificate {settings.tls_cert} and the key {settings.tls_key} cannot be used: {error.strerror}"
            ) from None
        return config


class _Server(uvicorn.Server):
    """Tells the application at once that it is to end: its long polls would hold up the end of the connections."""

    services: Services | None = None

    def __init__(self, config: LimitedConfig, ready: Callable[[], None], *, is_alone: bool) -> None:
        super().__init__(config)
        self._ready = ready
        self._is_alone = is_alone

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say so."""
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take signals while serving; one that was answered by an orderly end does not kill the process after it."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; asked again, stop."""
        if not self._is_alone:
            if sig == signal.SIGTERM:
                self.stop()
        elif self.should_exit:
            os._exit(1)
        else:
            self.stop()

    def stop(self) -> None:
        """Begin to stop."""
        if self.services is not None:
            self.services.stopping.set()
        self.should_exit = True


def _share(settings: ServerSettings) -> ServerSettings:
    """The settings of one of several workers: its part of what all may take together."""
    if settings.workers == 1:
        return settings
    pool = max(_FEWEST_DATABASE_CONNECTIONS, -(-settings.core.pool_size // settings.workers))
    return dataclasses.replace(
        settings,
        core=dataclasses.replace(settings.core, pool_size=min(pool, settings.core.pool_size)),
        max_connections=-(-settings.max_connections // settings.workers),
    )
