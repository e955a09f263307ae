"""``penstock demo``: the demo of all features, or of the log alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import typer

from penstock.cli.command import FAILED, INTERRUPTED, command
from penstock.cli.command_session import CommandSession, SharedOptions

_EVERYTHING, _LOG = "everything", "log"
_option: Any = partial(typer.Option, rich_help_panel="Demo of everything")
_log_option: Any = partial(typer.Option, rich_help_panel="Demo of the log")


root = typer.Typer()


@command(
    root,
    "demo",
    examples=[
        "penstock demo",
        "penstock demo --duration 120 --rate 500",
        "penstock demo --headless --json",
        "penstock demo log --speed 3",
    ],
)
async def demo(
    session: CommandSession,
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="everything, or log: queues, groups and dead letters only.")
    ] = _EVERYTHING,
    duration: Annotated[
        float | None,
        _option(min=1, metavar="SECONDS", help="Exit this long after the first results.", show_default="at Ctrl-C"),
    ] = None,
    rate: Annotated[float, _option(min=20, max=5000, metavar="N", help="Events per second.")] = 200.0,
    seed: Annotated[
        int, _option(min=0, metavar="N", help="The random seed. The same seed generates the same traffic.")
    ] = 0,
    headless: Annotated[bool, _option("--headless", help="Run without the console and a browser.")] = False,
    port: Annotated[
        int, _option(min=0, max=65535, metavar="N", help="The port of the console; 0 selects a free port.")
    ] = 0,
    events: Annotated[
        int, _log_option(min=10, max=2_000_000, metavar="N", help="The number of orders to push.")
    ] = 50_000,
    speed: Annotated[
        float,
        _log_option(
            min=0.1, max=1000, metavar="X", help="The playback speed of the story. The log always runs at full speed."
        ),
    ] = 1.0,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the database after the demo, to inspect it.")] = False,
) -> None:
    """Process the simulated traffic of a small company, and verify the results.

    The demo starts its own PostgreSQL, Spark, server and console, generates the traffic of a web analytics company,
    and compares every window with the events sent. Ctrl-C ends the demo and removes everything it created.
    """
    if what == _LOG:
        from penstock.cli.demo.log_demo import run_log_demo

        if SharedOptions() != replace(session.options, json=False, quiet=False, verbose=False):
            raise typer.BadParameter(
                "the demo of the log always uses a database of its own: omit options that name a database or server"
            )
        succeeded: bool | None = await run_log_demo(session.out, events=events, speed=speed, keep=keep)
    elif what == _EVERYTHING:
        from penstock.cli.commands.run import require_spark
        from penstock.cli.demo.full_demo import DemoOptions, find_streams, run_demo

        if session.options.server is not None or session.options.data_dir is not None:
            raise typer.BadParameter(
                "the demo starts a server and a database of its own. --database-url names a database to use instead, "
                "in which it creates queues and deletes them at the end"
            )
        require_spark()
        options = DemoOptions(find_streams(), duration, rate, seed, headless, port)
        succeeded = await run_demo(session.out, options, database_url=session.options.database_url, keep=keep)
    else:
        raise typer.BadParameter(f"there is no demo of {what!r}: give everything or log")
    if succeeded is not True:
        raise typer.Exit(INTERRUPTED if succeeded is None else FAILED)
