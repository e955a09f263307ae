"""``penstock console``: the web console."""

from __future__ import annotations

import importlib.util
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import command
from penstock.cli.command_session import CommandSession
from penstock.cli.supervised_process import supervise
from penstock.core.errors import ConfigurationError

if TYPE_CHECKING:
    from penstock.server.settings import ServerSettings


root = typer.Typer()


@command(
    root, "console", examples=["penstock console", "penstock console --port 8081", "penstock console --host 0.0.0.0"]
)
def console(
    session: CommandSession,
    host: Annotated[str | None, typer.Option(help="The address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port; 0 selects a free port.", show_default="6633")
    ] = None,
    require_access: Annotated[
        bool, typer.Option("--require-access", help="Require an API key on loopback too.")
    ] = False,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Show queues, queries, alerts and dead letters in a browser until Ctrl-C.

    Addresses other than loopback require an API key: create one with `penstock key create` first.
    """
    check_installed()
    # Imported here, so that other commands do not load the console.
    from penstock.console.app import run_console
    from penstock.console.settings import ConsoleSettings

    settings = ConsoleSettings.from_env(session.settings(), host=host, port=port, require_access=require_access or None)
    run_console(settings, parent=parent)


def check_installed() -> None:
    """Raise ConfigurationError if NiceGUI is not installed."""
    if importlib.util.find_spec("nicegui") is None:
        raise ConfigurationError("the console needs NiceGUI: run `pip install '.[console]'` in a checkout of Penstock")


@contextmanager
def run_console_process(settings: ServerSettings, port: int | None) -> Iterator[None]:
    """Run the console of a server in a child process, which ends with this process even if that is killed."""
    check_installed()
    command = [sys.executable, "-m", "penstock", "console", "--host", settings.host]
    command += [] if port is None else ["--port", str(port)]
    command += ["--require-access"] if settings.require_access else []
    with supervise(command, _environment(settings)):
        yield


def _environment(settings: ServerSettings) -> dict[str, str]:
    from penstock.core.settings import child_environment
    from penstock.server.settings import variable

    environment = child_environment(settings.core)
    # With keys of tokens, a server needs no API key to start, and neither does its console.
    for name in ("tls_cert", "tls_key", "jwt_jwks", "jwt_secret_file", "jwt_audience", "jwt_issuer"):
        value = getattr(settings, name)
        if value is not None:
            environment[variable(name)] = str(value)
    # A restarted console has the same secret, so that sessions stay signed in.
    environment.setdefault("PENSTOCK_CONSOLE_SECRET", secrets.token_hex(32))
    return environment
