"""Raw connections to a server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit


@contextmanager
def connect(url: str, timeout: float = 20) -> Iterator[socket.socket]:
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=timeout) as connection:
        yield connection


def read_to_end(connection: socket.socket) -> bytes:
    """Return everything that the server sends until it closes the connection."""
    return b"".join(iter(lambda: connection.recv(65_536), b""))
