"""The listening socket of a server."""

from __future__ import annotations

import socket

from penstock.core.errors import ConfigurationError
from penstock.server.settings import ServerSettings

_BACKLOG = 2048


def listen(settings: ServerSettings) -> socket.socket:
    """Open a non-blocking socket that listens on the configured host and port."""
    try:
        (family, kind, protocol, _, sockaddr), *_ = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on host {settings.host!r}: {error.strerror}") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(sockaddr)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise ConfigurationError(
            f"cannot listen on port {settings.port} of {settings.host}: {error.strerror}; "
            "if another server uses the port, choose another with --port"
        ) from None
    return listening


def address(settings: ServerSettings, listening: socket.socket) -> str:
    """Return the base URL under which clients reach the server."""
    host, port = listening.getsockname()[:2]
    return f"{settings.scheme}://{f'[{host}]' if ':' in host else host}:{port}"
