"""Running a query in the foreground: until a signal ends it, with a line that shows what it does."""

from __future__ import annotations

import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

    from penstock.engine.query import Query


def run_until_stopped(query: Query) -> Query:
    """Wait for the query; Ctrl-C and SIGTERM let it finish the cycle that it is in."""
    wanted = threading.Event()
    before = {}

    def stop(number: int, frame: FrameType | None) -> None:
        wanted.set()

    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        line = _StatusLine(query)
        while not query.wait(0.25):
            line.show()
            if wanted.is_set():
                query.stop()
        line.end()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return query


class _StatusLine:
    """One line on a terminal, written over again and again; nothing where there is no terminal."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._shown = sys.stderr.isatty()
        self._last = (time.monotonic(), 0)
        self._rate = 0.0

    def show(self) -> None:
        if not self._shown:
            return
        now, status = time.monotonic(), self._query.status
        if now - self._last[0] >= 1:
            self._rate = (status.events_in - self._last[1]) / (now - self._last[0])
            self._last = (now, status.events_in)
        parts = [
            f"{self._query.name}: {status.state}",
            f"{status.events_in:,} events",
            f"{self._rate:,.0f}/s",
            f"{status.windows:,} windows closed",
            f"{status.late:,} late",
            f"{status.dead:,} dead letters",
        ]
        sys.stderr.write("\r\x1b[2K" + " · ".join(parts))
        sys.stderr.flush()

    def end(self) -> None:
        if self._shown:
            sys.stderr.write("\n")
