"""Running a query in the foreground: until a signal ends it, with a line that shows what it does."""

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
#: To the beginning of the line, and nothing left of it.
_ANEW = "\r\x1b[2K"


def run_until_stopped(query: Query) -> Query:
    """Start the query and wait for it; Ctrl-C and SIGTERM let it finish what it is in, be it a cycle or its start."""
    asked: list[int] = []
    before = {}

    def stop(number: int, frame: FrameType | None) -> None:
        if not asked:
            asked.append(number)
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
    """One line on a terminal, written over again and again; and a line that stays, every so often."""

    def __init__(self, query: Query) -> None:
        self._name = query.name
        self._meter = StatusReporter(query.status)
        self._shown = sys.stderr.isatty()
        self._every = query.report_seconds
        self._reported = time.monotonic()

    def show(self) -> None:
        report = bool(self._every) and time.monotonic() - self._reported >= self._every
        if not (self._shown or report):
            return
        line = f"{self._name}: {self._meter.format_line()}"
        if report:
            self._reported = time.monotonic()
            moment = time.strftime("%H:%M:%S")
            sys.stderr.write(f"{_ANEW if self._shown else ''}{moment} {line}\n")
        if self._shown:
            sys.stderr.write(_ANEW + line)
        sys.stderr.flush()

    def end(self) -> None:
        if self._shown:
            sys.stderr.write(f"{_ANEW}{self._name}: {self._meter.format_line()}\n")
