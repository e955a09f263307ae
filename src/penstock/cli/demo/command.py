"""The command ``penstock demo``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import penstock
from penstock.cli.demo.board import board_for
from penstock.cli.demo.company import Company, DemoOptions, DemoResult
from penstock.cli.demo.processes import ProcessFailed
from penstock.cli.demo.screen import LiveScreen, PlainScreen, Screen
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.log import Log

if TYPE_CHECKING:
    from penstock.cli.output import Output


async def run_demo(out: Output, wishes: DemoOptions, *, database_url: str | None, keep: bool) -> bool | None:
    """Play the demonstration and show how it ended: False if something did not add up, None if it was cut short."""
    began = time.monotonic()
    screen = screen_for(out)
    with _directory(keep) as directory:
        settings = Settings.from_env(database_url=database_url, url=None, data_dir=directory)
        async with _opened(settings, screen, directory) as log:
            logs = directory / "demo-logs"
            logs.mkdir()
            company = Company(log, settings, logs, wishes, screen, began)
            try:
                with _stopped_by_signal(company):
                    outcome = await company.play(
                        board_for(out.console, silent=out.json or out.quiet), lambda: _welcome(out, screen, company)
                    )
            except ProcessFailed as error:
                out.error(error)
                return False
            finally:
                # However it ended: the next one would take what is left for somebody's.
                if database_url is not None and not keep:
                    await company.forget()
        _show(out, screen, outcome, directory if keep and database_url is None else None)
    if outcome.first_result_seconds is None:
        return None
    return outcome.succeeded


def find_streams() -> Path:
    """The streams that it runs: the example, as a checkout has it and a wheel too."""
    package = Path(penstock.__file__).parent
    places = (package / "cli/demo/streams.py", package.parents[1] / "examples/analytics/streams.py")
    return next(place for place in places if place.is_file())


def screen_for(out: Output) -> Screen:
    """What suits who watches."""
    if out.json or out.quiet:
        return Screen()
    return LiveScreen(out.console) if out.is_terminal else PlainScreen(out.console)


@contextlib.contextmanager
def _directory(keep: bool) -> Any:
    directory = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        yield directory
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)


@asynccontextmanager
async def _opened(settings: Settings, screen: Screen, directory: Path) -> AsyncIterator[Log]:
    log = Log(Database(settings))
    with screen.act("PostgreSQL", "the one that was named, or one that comes with the package") as act:
        started = time.monotonic()
        await log.open()
        where = f"in {directory}" if settings.database_url is None else "as you said"
        act.result = f"It answers after {time.monotonic() - started:.1f} s, {where}."
    try:
        yield log
    finally:
        await log.close()


@contextlib.contextmanager
def _stopped_by_signal(company: Company) -> Any:
    """The first Ctrl-C ends the traffic, and everything is added up; the second one does not wait for that."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        company.stop()

    loop.add_signal_handler(signal.SIGINT, stop)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _welcome(out: Output, screen: Screen, company: Company) -> None:
    """Say where to look, and open it where there is a desktop."""
    where = company.console_url
    screen.words("")
    if where is not None:
        screen.words(f"  {where}  is the console; look at")
        screen.words("    the overview and the live board: numbers that move every second, users online now")
        screen.words("    gates, dead letters and alerts: what the phases below bring about")
        screen.words("    SQL: SELECT key, users FROM penstock_live.online")
    screen.words(f"  {company.server_url}  is the server: /metrics, /v1/queries/online/live")
    screen.words("")
    has_desktop = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if where is not None and has_desktop and out.is_terminal:
        webbrowser.open(where)


def _show(out: Output, screen: Screen, outcome: DemoResult, kept: Path | None) -> None:
    if out.json:
        checks = [{**asdict(check), "holds": check.holds} for check in outcome.checks]
        out.document(
            {
                **asdict(outcome),
                "checks": checks,
                "succeeded": outcome.succeeded,
                "data_dir": None if kept is None else str(kept),
            }
        )
        return
    if not outcome.checks:
        screen.words("It was ended before there was anything to add up.")
        return
    rows = [(check.what, check.expected, check.found, "yes" if check.holds else "NO") for check in outcome.checks]
    out.table(("check", "expected", "found", "holds"), rows, title="Did it add up?", right=("expected", "found"))
    for queue, count in outcome.foreign.items():
        screen.words(f"{count:,} events in {queue} are not ours, but yours perhaps: its windows were not compared.")
    if not outcome.succeeded:
        for wrong in outcome.wrong[:10]:
            out.error(wrong)
        out.error("something did not add up: see the lines that say NO")
        return
    screen.words(
        f"It did: {outcome.events:,} events, {outcome.alerts} alerts, {outcome.refused} times 429; nothing lost, "
        "nothing twice."
    )
    if kept is not None:
        screen.words(f"The database is kept in {kept}, until you delete that directory. Look around:")
        screen.words(f"  penstock query list --data-dir {kept}")
        screen.words(f"  penstock console --data-dir {kept}")
