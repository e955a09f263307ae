"""``penstock console``: the pages in a browser."""

from __future__ import annotations

import importlib.util
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import command
from penstock.cli.session import Session
from penstock.cli.supervised_process import kept_running

if TYPE_CHECKING:
    from penstock.server.settings import ServerSettings


def register(app: typer.Typer) -> None:
    """Add the command."""
    examples = [
        "penstock console",
        "penstock console --port 8081",
        "penstock console --host 0.0.0.0",
    ]
    command(app, "console", examples=examples)(console)


def console(
    session: Session,
    host: Annotated[str | None, typer.Option(help="The address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.", show_default="6633")
    ] = None,
    require_access: Annotated[bool, typer.Option("--require-access", help="Ask for a key on loopback too.")] = False,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Show queues, queries, alerts and dead letters in a browser until Ctrl-C.

    On loopback nobody is asked for a key; on any other address everybody is, so `penstock key create` comes first.
    """
    check_installed()
    # Not at the top: the other commands need not wait for it.
    from penstock.console.run import run_console
    from penstock.console.settings import ConsoleSettings

    settings = ConsoleSettings.from_env(session.settings(), host=host, port=port, require_access=require_access or None)
    run_console(settings, parent=parent)


def check_installed() -> None:
    """Say what to install, if it is not."""
    if importlib.util.find_spec("nicegui") is None:
        from penstock.core.errors import ConfigurationError

        raise ConfigurationError("the console needs NiceGUI: install it with `pip install 'penstock[console]'`")


@contextmanager
def console_beside(settings: ServerSettings, port: int | None) -> Iterator[None]:
    """Run the console next to a server with these settings, in a process that ends with this one, however it ends."""
    check_installed()
    command = [sys.executable, "-m", "penstock", "console", "--host", settings.host]
    command += [] if port is None else ["--port", str(port)]
    command += ["--require-access"] if settings.require_access else []
    with kept_running(command, _environment(settings)):
        yield


def _environment(settings: ServerSettings) -> dict[str, str]:
    """The server's own settings for the console; a database's address may hold a password, so not as options."""
    said = dict(os.environ)
    core = settings.core
    if core.database_url is None:
        for name in (
            "PENSTOCK_DATABASE_URL",
            "DATABASE_URL",
            "PGHOST",
            "PGHOSTADDR",
            "PGPORT",
            "PGDATABASE",
            "PGSERVICE",
        ):
            said.pop(name, None)
        said["PENSTOCK_DATA_DIR"] = str(core.data_dir)
    elif core.database_url:
        said["PENSTOCK_DATABASE_URL"] = core.database_url
    for name, path in (("PENSTOCK_TLS_CERT", settings.tls_cert), ("PENSTOCK_TLS_KEY", settings.tls_key)):
        if path is not None:
            said[name] = str(path)
    # One that takes the place of another knows who is signed in.
    said.setdefault("PENSTOCK_CONSOLE_SECRET", secrets.token_hex(32))
    return said
