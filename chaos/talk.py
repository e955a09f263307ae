"""Speaking to the server in plain HTTP, as any program could."""

from __future__ import annotations

import http.client
import json
from typing import Any

#: Longer than a delay in between, shorter than what a server may take to give up: requests overlap their repetitions.
_PATIENCE_SECONDS = 8.0


class Unanswered(Exception):
    """The request may have been done or not: nobody said."""


class Server:
    """One connection, made anew when it is lost."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._conn: http.client.HTTPConnection | None = None

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """What the server answers, and its status."""
        return self.ask("POST", path, body, headers)

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """Ask once."""
        try:
            if self._conn is None:
                self._conn = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_PATIENCE_SECONDS)
            sent = None if body is None else json.dumps(body).encode()
            self._conn.request(method, path, sent, {"Content-Type": "application/json", **(headers or {})})
            answer = self._conn.getresponse()
            said = answer.read()
            return answer.status, json.loads(said) if said else None
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise Unanswered(str(error)) from error

    def close(self) -> None:
        """Let go of the connection."""
        if self._conn is not None:
            self._conn.close()
        self._conn = None
