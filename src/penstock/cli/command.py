"""What all commands have in common: shared options, how they run, and how they end."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer

from penstock.cli.session import Choices, Session

OK, FAILED, USAGE, NOT_FOUND, NO_DATABASE = range(5)
INTERRUPTED = 130
_TERMINATED = 143

EXIT_CODES = (
    "Exit codes: 0 done, 1 refused or failed, 2 asked for in a wrong way, 3 not found, "
    "4 no database or server to work with, 130 interrupted."
)

_PANEL = "Options of every command"

DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        metavar="URL",
        help="The PostgreSQL to use. Without it: PENSTOCK_DATABASE_URL, DATABASE_URL or PGHOST, "
        "else the embedded PostgreSQL.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="Ask this Penstock server and not a database, as PENSTOCK_URL does; its key is PENSTOCK_API_KEY.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIRECTORY",
        help="Use the embedded PostgreSQL of this directory, whatever the environment says.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print JSON: one document, or a line for each event where events are listed.",
        rich_help_panel=_PANEL,
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only.", rich_help_panel=_PANEL)]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print what goes on, and the cause of an error.", rich_help_panel=_PANEL)
]


def shared_options(
    database_url: DatabaseUrl = None,
    data_dir: DataDir = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    server: Server = None,
) -> Choices:
    """What the options that every command has say."""
    return Choices(database_url, data_dir, json, quiet, verbose, server)


P = ParamSpec("P")
CommandBody = Callable[..., Awaitable[None] | None]


def command(
    app: typer.Typer,
    name: str,
    *,
    examples: Sequence[str],
    options: Callable[..., Any] | None = None,
) -> Callable[[CommandBody], CommandBody]:
    """Register a function as a command; it gets a :class:`Session` first, and may be asynchronous.

    ``options`` is a function whose parameters become options of the command too: what they were given arrives in the
    command's ``**options``.
    """

    def register(body: CommandBody) -> CommandBody:
        # Strings by now, because of the lazy annotations: resolved before they are moved to another function.
        own = list(inspect.signature(body, eval_str=True).parameters.values())[1:]
        own = [each for each in own if each.kind is not inspect.Parameter.VAR_KEYWORD]
        more = [] if options is None else list(inspect.signature(options, eval_str=True).parameters.values())
        shared = list(inspect.signature(shared_options, eval_str=True).parameters.values())
        context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)

        @wraps(body)
        def run(ctx: typer.Context, **given: Any) -> None:
            choices = shared_options(**{each.name: given.pop(each.name) for each in shared})
            _run(body, choices.over(ctx.find_object(Choices) or Choices()), given)

        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *more, *shared)]
        run.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]  # read by typer
        run.__annotations__ = {each.name: each.annotation for each in (context, *parameters)}
        del run.__wrapped__  # typer must see the signature above
        app.command(name, epilog=_epilog(examples))(run)
        return body

    return register


def _epilog(examples: Sequence[str]) -> str:
    # Square brackets are markup to the one who prints it.
    lines = [example.replace("[", "\\[") for example in examples]
    return "\n".join(["[bold]Examples[/bold]", *(f"  [cyan]{line}[/cyan]" for line in lines)])


def _run(body: CommandBody, choices: Choices, given: dict[str, Any]) -> None:
    from penstock.core.errors import PenstockError

    session = Session(choices)
    try:
        outcome = body(session, **given)
        if inspect.iscoroutine(outcome):
            _run_to_end(outcome)
    except PenstockError as error:
        session.out.error(error)
        raise typer.Exit(exit_code(error)) from error
    except BrokenPipeError:
        # Whoever read our output has seen enough, as in `penstock queue tail orders -n 100000 | head`.
        with contextlib.suppress(OSError):
            sys.stdout = open("/dev/null", "w")  # noqa: SIM115 - it is flushed when the interpreter ends
        raise typer.Exit(OK) from None
    except Exception as error:
        if not _is_from_database(error):
            raise
        session.out.error(error)
        raise typer.Exit(NO_DATABASE) from error


def _run_to_end(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run to the end, or to a SIGTERM, which ends it as cleanly as Ctrl-C does."""
    import asyncio
    import signal

    async def watched() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine that runs is in a task
        with contextlib.suppress(NotImplementedError, ValueError):
            loop.add_signal_handler(signal.SIGTERM, task.cancel)
        await coroutine

    try:
        asyncio.run(watched())
    except asyncio.CancelledError:
        raise typer.Exit(_TERMINATED) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def exit_code(error: Exception) -> int:
    """Return the exit code that says what kind of error it was."""
    from penstock.core.errors import ConfigurationError, DatabaseError, InvalidRequest, NotFound, ServerUnavailable

    if isinstance(error, NotFound):
        return NOT_FOUND
    if isinstance(error, DatabaseError | ServerUnavailable):
        return NO_DATABASE
    if isinstance(error, InvalidRequest | ConfigurationError):
        return USAGE
    return FAILED


def _is_from_database(error: Exception) -> bool:
    psycopg = sys.modules.get("psycopg")
    return psycopg is not None and isinstance(error, psycopg.Error)
