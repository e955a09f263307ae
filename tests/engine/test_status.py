"""What a query says of itself while it runs and when it has ended."""

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
from penstock.engine import commands
from penstock.engine.status import Meter, Status
from tests.engine.pipelines import T0, Bench, counted, eventually, stream


def test_lag_and_open_windows_are_told(bench: Bench) -> None:
    bench.queue()
    with bench.running(counted(stream()).to("totals")) as query:
        bench.push([(key, {"ts": T0, "amount": 1}) for key in "abc"])
        eventually(lambda: (query.status.lag, query.status.open_windows) == (0, 3), "three open windows")
        pause(bench)
        eventually(lambda: query.status.summary == "paused", "the pause")
        bench.push([("a", {"ts": T0, "amount": 1})])
        eventually(lambda: query.status.lag == 1, "one event behind")
        said = Meter(query.status).line()
        assert said.startswith("paused, 3 events (")
        assert "1 behind, 3 windows open and 0 closed, 0 late, 0 dead letters" in said
        query.stop(flush=True)
    assert (query.status.lag, query.status.open_windows, query.status.windows) == (1, 0, 3)


def pause(bench: Bench) -> None:
    async def ask() -> None:
        async with Database(bench.settings) as database:
            await commands.pause(database, "q")

    asyncio.run(ask())


def test_the_rate_of_a_query_that_has_ended_is_that_of_all_its_time() -> None:
    status = Status(events_in=500, started_at=10.0, stopped_at=20.0)
    assert Meter(status).per_second == 50


class Terminal:
    """Standard error as a terminal, and what was written there."""

    def __init__(self) -> None:
        self._ours, theirs = pty.openpty()
        self.file = os.fdopen(theirs, "w")
        self.text = ""
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        try:
            while some := os.read(self._ours, 4096):
                self.text += some.decode()
        except OSError:
            pass  # the other end is closed

    def close(self) -> None:
        self.file.close()
        self._listener.join()
        os.close(self._ours)


@contextmanager
def sigterm_when(condition: Callable[[], object]) -> Iterator[None]:
    """Signal this process as soon as something is so, while it runs a query in the foreground."""

    def wait() -> None:
        eventually(condition, "what the signal waits for")
        os.kill(os.getpid(), signal.SIGTERM)

    waiter = threading.Thread(target=wait)
    waiter.start()
    yield
    waiter.join()


LINE = r"q: running, 1 events \(\d+/s\), 0 behind, 1 windows open and 0 closed, 0 late, 0 dead letters"


def test_in_the_foreground_there_is_a_status_line_and_a_report_until_a_signal(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.queue()
    bench.push([("k", {"ts": T0, "amount": 1})])
    with closing(Terminal()) as terminal:
        monkeypatch.setattr(sys, "stderr", terminal.file)

        def has_said_both() -> bool:
            line, report = (re.search(before + LINE, terminal.text) for before in (r"\r\x1b\[2K", r"\d\d:\d\d:\d\d "))
            return bool(line and report)

        with sigterm_when(has_said_both):
            query = counted(stream()).run("q", settings=bench.settings, report_seconds=0.5)
    assert (query.status.state, query.status.events_in) == ("stopped", 1)
    assert "q: stopped, 1 events" in terminal.text


def test_a_signal_while_a_query_starts_ends_it_cleanly(bench: Bench) -> None:
    bench.queue()
    with sigterm_when(lambda: bench.ask("SELECT count(*) FROM penstock.queries")):
        query = counted(stream()).run("q", settings=bench.settings)
    assert query.status.state == "stopped"
    assert bench.ask("SELECT count(*) FROM penstock.queries WHERE lease_until > clock_timestamp()") == 0
