"""Registration of commands: shared options, running, error reporting and exit codes."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import wraps
from typing import Any, get_args

import typer
from typer.core import TyperCommand
from typer.models import OptionInfo

from penstock.cli.command_session import CommandSession, SharedOptions
from penstock.core.errors import (
    ConfigurationError,
    DatabaseError,
    InvalidOption,
    InvalidRequest,
    NotFound,
    PenstockError,
    ServerUnavailable,
)

OK, FAILED, USAGE, NOT_FOUND, NO_DATABASE = range(5)
INTERRUPTED = 130
_TERMINATED = 143

#: The parameters of commands for options that have another name in Python.
_PARAMETERS = {"subscription_from": "begin"}

EXIT_CODES = (
    "Exit codes: 0 success, 1 failure, 2 invalid usage, 3 not found, 4 database or server unavailable, 130 interrupted."
)

CommandBody = Callable[..., Awaitable[None] | None]


class PenstockCommand(TyperCommand):
    """A command whose help shows flags without a value."""

    def get_params(self, ctx: Any) -> list[Any]:
        return hide_flag_values(super().get_params(ctx))


def hide_flag_values(params: list[Any]) -> list[Any]:
    """Remove the type ``<bool>`` that typer prints after flags."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


def command(
    app: typer.Typer,
    name: str,
    *,
    examples: Sequence[str],
    options: Callable[..., Any] | Sequence[inspect.Parameter] = (),
) -> Callable[[CommandBody], CommandBody]:
    """Register a function, which may be asynchronous, as a command. Its first argument is a :class:`CommandSession`.

    ``options`` are parameters, or a function with parameters, that become options of the command too. The command
    receives their values in ``**options``.
    """

    def register(body: CommandBody) -> CommandBody:
        parameters = [*_parameters(body)[1:], *(_parameters(options) if callable(options) else options)]
        flags = {parameter.name: _flag(parameter) for parameter in parameters}

        @wraps(body)
        def run(ctx: typer.Context, **values: Any) -> None:
            chosen = SharedOptions(**{option: values.pop(option) for option in SharedOptions.__annotations__})
            _run(body, chosen.override(ctx.find_object(SharedOptions) or SharedOptions()), values, flags)

        del run.__wrapped__  # typer must see the signature of run
        set_options(run, parameters)
        app.command(name, cls=PenstockCommand, help=_help(body), epilog=_epilog(examples))(run)
        return body

    return register


def set_options(callback: Callable[..., None], parameters: Sequence[inspect.Parameter]) -> None:
    """Let typer see these parameters and the shared options in place of ``**values`` of a callback."""
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    options = [*parameters, *_parameters(SharedOptions)]
    keywords = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]
    callback.__signature__ = inspect.Signature([context, *keywords])  # type: ignore[attr-defined]  # read by typer
    callback.__annotations__ = {option.name: option.annotation for option in (context, *keywords)}


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    # Lazy annotations are strings. They are resolved before they move to another function.
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    return [parameter for parameter in parameters if parameter.kind is not inspect.Parameter.VAR_KEYWORD]


def _help(body: CommandBody) -> str:
    """Return the docstring with one line per paragraph: typer prints its line breaks."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in (inspect.getdoc(body) or "").split("\n\n"))


def _epilog(examples: Sequence[str]) -> str:
    # Rich reads square brackets as markup.
    lines = [example.replace("[", "\\[") for example in examples]
    return "\n".join(["[bold]Examples[/bold]", *(f"  [cyan]{line}[/cyan]" for line in lines)])


def _flag(parameter: inspect.Parameter) -> str | None:
    """Return the option of a parameter as it is typed; None for an argument."""
    for information in get_args(parameter.annotation)[1:]:
        if isinstance(information, OptionInfo):
            names = [name for name in information.param_decls or () if name.startswith("--")]
            return names[0] if names else f"--{parameter.name.replace('_', '-')}"
    return None


def _name_option(error: InvalidOption, flags: Mapping[str, str | None]) -> str:
    """Return the message of an error with the option as it was typed: ``--interval`` for ``interval_seconds``."""
    parameters = (error.option, error.option.removesuffix("_seconds"), _PARAMETERS.get(error.option, ""))
    flag = next((flags[name] for name in parameters if flags.get(name)), None)
    message = str(error)
    return message if flag is None or not message.startswith(error.option) else flag + message[len(error.option) :]


def _run(body: CommandBody, options: SharedOptions, values: dict[str, Any], flags: Mapping[str, str | None]) -> None:
    session = CommandSession(options)
    try:
        result = body(session, **values)
        if inspect.iscoroutine(result):
            _run_coroutine(result)
    except PenstockError as error:
        session.out.error(_name_option(error, flags) if isinstance(error, InvalidOption) else error)
        raise typer.Exit(exit_code(error)) from error
    except BrokenPipeError:
        # The reader of our output has closed the pipe, as in `penstock queue tail orders -n 100000 | head`.
        with contextlib.suppress(OSError):
            sys.stdout = open("/dev/null", "w")  # noqa: SIM115 - the interpreter flushes it at exit
        raise typer.Exit(OK) from None
    except Exception as error:
        if not _is_from_database(error):
            raise
        session.out.error(error)
        raise typer.Exit(NO_DATABASE) from error


def _run_coroutine(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine. SIGTERM cancels it, as Ctrl-C does."""
    import asyncio
    import signal

    async def run_until_signal() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio.run creates a task
        with contextlib.suppress(NotImplementedError, ValueError):
            loop.add_signal_handler(signal.SIGTERM, task.cancel)
        await coroutine

    try:
        asyncio.run(run_until_signal())
    except asyncio.CancelledError:
        raise typer.Exit(_TERMINATED) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def exit_code(error: Exception) -> int:
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
