"""The other end of a webhook: ``python -m chaos.receiver PORT JOURNAL MOOD``.

It writes down what it gets before it answers. The file MOOD says how it is: ``busy`` answers 503, ``broken`` 500,
``silent`` nothing at all for a while, ``rude`` cuts the connection after having written down; else it is well.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from chaos.journal import Journal

_ANSWERS = {"busy": 503, "broken": 500}
_SILENT_SECONDS = 15.0


class Receiver(ThreadingHTTPServer):
    """Receives batches of events."""

    daemon_threads = True

    def __init__(self, port: int, journal: Path, mood: Path) -> None:
        super().__init__(("127.0.0.1", port), _Request)
        self._journal = Journal(journal)
        self._mood = mood
        self._lock = threading.Lock()

    def mood(self) -> str:
        """Return its current mood."""
        return self._mood.read_text().strip() if self._mood.exists() else ""

    def note(self, body: bytes) -> None:
        """Record a batch."""
        events = [[event["id"], event["key"], event["data"]] for event in json.loads(body)["events"]]
        with self._lock:
            self._journal.write({"t": time.monotonic(), "got": events})


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        mood = self.server.mood()
        if mood == "silent":
            time.sleep(_SILENT_SECONDS)
        elif mood not in _ANSWERS:
            self.server.note(body)
        if mood in ("silent", "rude"):
            self.close_connection = True
            return
        self.send_response(_ANSWERS.get(mood, 200))
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


if __name__ == "__main__":
    Receiver(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])).serve_forever()
