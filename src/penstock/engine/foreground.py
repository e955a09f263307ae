"""Runs a query in the foreground until a signal stops it, and shows its status."""

from __future__ import annotations

import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from penstock.engine.status import StatusReporter

if TYPE_CHECKING:
    from types import FrameType

    from penstock.engine.query import Query

_SHOW_SECONDS = 0.25
_CLEAR_LINE = "\r\x1b[2K"


def run_until_stopped(query: Query) -> Query:
    """Start the query and wait for it. SIGINT and SIGTERM end it after its start or its current cycle."""
    before = {}
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        # A second signal may interrupt the first call, which holds a lock.
        if not received:
            received.append(number)
            query.ask_to_stop()

    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        query.start()
        line = _StatusLine(query)
        while not query.wait(_SHOW_SECONDS):
            line.show()
        line.end()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return query


class _StatusLine:
    """A status line on a terminal that is overwritten, and a line that stays every ``report_seconds``."""

    def __init__(self, query: Query) -> None:
        self._name = query.name
        self._reporter = StatusReporter(query.status)
        self._is_terminal = sys.stderr.isatty()
        self._report_seconds = query.report_seconds
        self._reported_at = time.monotonic()

    def show(self) -> None:
        report = bool(self._report_seconds) and time.monotonic() - self._reported_at >= self._report_seconds
        if not (self._is_terminal or report):
            return
        line = f"{self._name}: {self._reporter.format_line()}"
        if report:
            self._reported_at = time.monotonic()
            moment = time.strftime("%H:%M:%S")
            sys.stderr.write(f"{_CLEAR_LINE if self._is_terminal else ''}{moment} {line}\n")
        if self._is_terminal:
            sys.stderr.write(_CLEAR_LINE + line)
        sys.stderr.flush()

    def end(self) -> None:
        if self._is_terminal:
            sys.stderr.write(f"{_CLEAR_LINE}{self._name}: {self._reporter.format_line()}\n")
