"""The server, from the settings to the end: one process, or several that share a port."""

from __future__ import annotations

import dataclasses
import logging
import resource
import socket
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.core.errors import ConfigurationError
from penstock.server.http.json_log import log_as_json
from penstock.server.process.supervisor import Supervisor
from penstock.server.process.worker import Worker
from penstock.server.settings import ServerSettings

logger = logging.getLogger("penstock.server")

_BACKLOG = 2048


def serve(settings: ServerSettings) -> None:
    """Serve until SIGTERM or Ctrl-C: what was accepted by then is committed and answered."""
    _allow_connections(settings.max_connections)
    with listen(settings) as listening:
        log_as_json(settings.core.log_level)
        if not settings.is_loopback and settings.tls_cert is None:
            logger.warning("keys and events travel in the clear: give --tls-cert and --tls-key, or put TLS before it")

        def ready() -> None:
            print(f"Listening on {address(settings, listening)}", flush=True)

        if settings.workers == 1:
            Worker(settings, listening, ready).run()
            return
        with TemporaryDirectory(prefix="penstock-") as counts:
            together = dataclasses.replace(settings, metrics_dir=settings.metrics_dir or Path(counts))
            Supervisor(together, listening, ready).run()


def listen(settings: ServerSettings) -> socket.socket:
    """Take the port."""
    try:
        (family, kind, protocol, _, where), *_ = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigurationError(f"{settings.host!r} is no address to listen on: {error.strerror}") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(where)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise ConfigurationError(
            f"port {settings.port} of {settings.host} cannot be used: {error.strerror}; "
            "another server may have it, --port takes another"
        ) from None
    return listening


def address(settings: ServerSettings, listening: socket.socket) -> str:
    """Where callers find the server."""
    host, port = listening.getsockname()[:2]
    return f"{settings.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _allow_connections(most: int) -> None:
    """Have as many files open as there may be connections, as far as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most + 256
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard) if hard > 0 else wanted, hard))
