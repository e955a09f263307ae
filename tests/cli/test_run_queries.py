"""Queries in the foreground of a command."""

from __future__ import annotations

import io
import logging
import signal
import sys
from typing import NoReturn

import pytest
from rich.console import Console
from rich.live import Live

from penstock.cli.output import Output
from penstock.cli.run_queries import run_queries
from penstock.core.errors import Conflict, QueryChanged
from penstock.engine import foreground


def test_a_changed_query_is_refused_with_the_names_of_options() -> None:
    def start() -> NoReturn:
        raise QueryChanged("totals", "- filter amount > 0\n+ filter amount > 5", "Start it with reset=True")

    with pytest.raises(QueryChanged) as caught:
        run_queries([start], Output(), 60.0)

    assert "query 'totals' was started before as another stream" in str(caught.value)
    assert "+ filter amount > 5" in str(caught.value)
    assert "--reset" in str(caught.value)
    assert "reset=True" not in str(caught.value)


def test_ctrl_c_while_spark_starts_says_that_the_start_goes_on() -> None:
    def start() -> NoReturn:
        signal.raise_signal(signal.SIGINT)
        raise Conflict("another driver runs the query")

    console = Console(file=io.StringIO())
    with pytest.raises(Conflict):
        foreground.run_queries([start], lambda query, reporter: None, 60.0, console)
    assert "Stopping as soon as Spark has started" in console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO


def test_a_log_message_appears_above_a_live_table(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    terminal = io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    Output().configure_logging("WARNING")
    live_console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with Live("table", console=live_console, auto_refresh=False):
        logging.getLogger("penstock.test").warning("the database is away")
    assert "the database is away" in live_console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert terminal.getvalue() == ""
