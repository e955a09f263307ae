"""An HTTP client of the server, independent of the product."""

from __future__ import annotations

import http.client
import json
from typing import Any

#: Longer than the delays of proxies and shorter than the timeouts of the server, so that repeated requests overlap.
_TIMEOUT_SECONDS = 8.0


class NoResponse(Exception):
    """There was no response: the request may have been processed or not."""


class Server:
    """One connection, which is opened again when it is lost."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._conn: http.client.HTTPConnection | None = None

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """POST a body; return the status and the response."""
        return self.ask("POST", path, body, headers)

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """Send a request once; return the status and the response."""
        try:
            if self._conn is None:
                self._conn = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_SECONDS)
            sent = None if body is None else json.dumps(body).encode()
            self._conn.request(method, path, sent, {"Content-Type": "application/json", **(headers or {})})
            response = self._conn.getresponse()
            content = response.read()
            return response.status, json.loads(content) if content else None
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise NoResponse(str(error)) from error

    def close(self) -> None:
        """Close the connection."""
        if self._conn is not None:
            self._conn.close()
        self._conn = None
