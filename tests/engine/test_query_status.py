"""The status of a query while it runs and after it has ended."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from penstock.db.pool import Database
from penstock.engine import query_commands
from penstock.engine.query_status import Status, StatusReporter
from tests.conditions import eventually
from tests.engine.pipelines import T0, Bench, counted, stream


def test_the_status_has_lag_and_open_windows(bench: Bench) -> None:
    bench.queue()
    with bench.running(counted(stream()).to("totals")) as query:
        bench.push([(key, {"ts": T0, "amount": 1}) for key in "abc"])
        eventually(lambda: (query.status.lag, query.status.open_windows) == (0, 3), "three open windows")
        pause(bench)
        eventually(lambda: query.status.summary == "paused", "the pause")
        bench.push([("a", {"ts": T0, "amount": 1})])
        eventually(lambda: query.status.lag == 1, "one event behind")
        line = StatusReporter(query.status).format_line()
        assert line.startswith("paused, 3 events (")
        assert "1 behind, 3 windows open and 0 closed, 0 late, 0 dead letters" in line
        query.stop(flush=True)
    assert (query.status.lag, query.status.open_windows, query.status.windows) == (1, 0, 3)


def pause(bench: Bench) -> None:
    async def ask() -> None:
        async with Database(bench.settings) as database:
            await query_commands.pause(database, "q")

    asyncio.run(ask())


def test_the_rate_of_an_ended_query_is_its_mean_rate() -> None:
    status = Status(events_in=500, started_at=10.0, stopped_at=20.0)
    assert StatusReporter(status).events_per_second == 50


class Terminal:
    """A terminal as standard error, which records the output."""

    def __init__(self) -> None:
        self._ours, theirs = pty.openpty()
        self.file = os.fdopen(theirs, "w")
        self.text = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while data := os.read(self._ours, 4096):
                self.text += data.decode()
        except OSError:
            pass  # the other end is closed

    def close(self) -> None:
        self.file.close()
        self._reader.join()
        os.close(self._ours)


@contextmanager
def sigterm_when(condition: Callable[[], object]) -> Iterator[None]:
    """Send SIGTERM to this process once a condition holds, while it runs a query in the foreground."""

    def wait() -> None:
        eventually(condition, "the condition for the signal")
        os.kill(os.getpid(), signal.SIGTERM)

    waiter = threading.Thread(target=wait)
    waiter.start()
    yield
    waiter.join()


ROW = r"q +running +1 +\d+ +0 +1 +0 +0 +0"
LINE = r"\d\d:\d\d:\d\d q: running, 1 event \(\d+/s\), 0 behind, 1 window open and 0 closed, 0 late, 0 dead letters"


def test_a_query_in_the_foreground_shows_a_table_and_reports_until_a_signal(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.queue()
    bench.push([("k", {"ts": T0, "amount": 1})])
    with closing(Terminal()) as terminal:
        monkeypatch.setattr(sys, "stderr", terminal.file)
        monkeypatch.setenv("TERM", "xterm")

        def has_printed_both() -> bool:
            return bool(re.search(ROW, terminal.text) and re.search(LINE, terminal.text))

        with sigterm_when(has_printed_both):
            query = counted(stream()).run("q", settings=bench.settings, report_seconds=0.5)
    assert (query.status.state, query.status.events_in) == ("stopped", 1)
    assert "q: stopped, 1 event" in terminal.text


def test_a_signal_during_the_start_ends_the_query_cleanly(bench: Bench) -> None:
    bench.queue()
    with sigterm_when(lambda: bench.ask("SELECT count(*) FROM penstock.queries")):
        query = counted(stream()).run("q", settings=bench.settings)
    assert query.status.state == "stopped"
    assert bench.ask("SELECT count(*) FROM penstock.queries WHERE lease_until > clock_timestamp()") == 0
