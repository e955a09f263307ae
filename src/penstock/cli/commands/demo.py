"""``penstock demo``: everything at work, or the log alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from penstock.cli.command import FAILED, INTERRUPTED, command
from penstock.cli.session import Choices, Session

_EVERYTHING, _LOG = "everything", "log"
_OF_ALL, _OF_LOG = "For everything", "For the log"


def register(app: typer.Typer) -> None:
    """Add the command."""
    examples = [
        "penstock demo",
        "penstock demo --duration 120 --rate 500",
        "penstock demo --headless --json",
        "penstock demo log --speed 3",
    ]
    command(app, "demo", examples=examples)(demo)


async def demo(
    session: Session,
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="everything, or the log: queues, groups and dead letters alone.")
    ] = _EVERYTHING,
    duration: Annotated[
        float | None,
        typer.Option(
            min=1,
            metavar="SECONDS",
            help="End so long after the first results.",
            show_default="at Ctrl-C",
            rich_help_panel=_OF_ALL,
        ),
    ] = None,
    rate: Annotated[
        float, typer.Option(min=20, max=5000, metavar="N", help="Events a second.", rich_help_panel=_OF_ALL)
    ] = 200.0,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="The same seed, the same traffic.", rich_help_panel=_OF_ALL)
    ] = 0,
    headless: Annotated[
        bool, typer.Option("--headless", help="Without the console and a browser.", rich_help_panel=_OF_ALL)
    ] = False,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, metavar="N", help="The console's port; 0 takes a free one.", rich_help_panel=_OF_ALL
        ),
    ] = 0,
    events: Annotated[
        int, typer.Option(min=10, max=2_000_000, metavar="N", help="How many orders to push.", rich_help_panel=_OF_LOG)
    ] = 50_000,
    speed: Annotated[
        float,
        typer.Option(
            min=0.1,
            max=1000,
            metavar="X",
            help="Play it so many times as fast; the log is not slowed.",
            rich_help_panel=_OF_LOG,
        ),
    ] = 1.0,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the database, to look around in it.")] = False,
) -> None:
    """Watch it at work: a small company's traffic, live, and whether it all adds up.

    It starts a PostgreSQL of its own, Spark, the server and the console, sends them the traffic of a web analytics
    company, and compares every window with what was sent. Ctrl-C ends it, and nothing of it is left.
    """
    if what == _LOG:
        from penstock.cli.demo.log.command import run_demo as run_log

        if Choices() != replace(session.choices, json=False, quiet=False, verbose=False):
            raise typer.BadParameter("this demo brings a database of its own, so that it cannot touch yours")
        succeeded: bool | None = await run_log(session.out, events=events, speed=speed, keep=keep)
    elif what == _EVERYTHING:
        from penstock.cli.commands.run import need_spark
        from penstock.cli.demo.command import find_streams, run_demo
        from penstock.cli.demo.company import Wishes

        if session.choices.server is not None or session.choices.data_dir is not None:
            raise typer.BadParameter(
                "the demo starts a server and a database of its own; --database-url names a database to use instead, "
                "in which it makes queues and deletes them again"
            )
        need_spark()
        wishes = Wishes(find_streams(), duration, rate, seed, headless, port)
        succeeded = await run_demo(session.out, wishes, database_url=session.choices.database_url, keep=keep)
    else:
        raise typer.BadParameter(f"there is a demo of everything and one of the log, none of {what!r}")
    if succeeded is not True:
        raise typer.Exit(INTERRUPTED if succeeded is None else FAILED)
