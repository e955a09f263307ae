"""The session of one command: its shared options, its output, and its connection to the queues."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.output import Output
from penstock.core.errors import NotFound, PenstockError

if TYPE_CHECKING:
    from penstock.client.transport import Transport
    from penstock.core.settings import Settings
    from penstock.log.log import Log
    from penstock.log.queue import Queue

_option: Any = partial(typer.Option, rich_help_panel="Shared options")

#: Shorter than the default of other clients, because a person waits.
_RETRY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class SharedOptions:
    """The values of the options that every command has."""

    database_url: Annotated[
        str | None,
        _option(
            "--database-url",
            metavar="URL",
            help="The PostgreSQL database. Default: PENSTOCK_DATABASE_URL, DATABASE_URL or PGHOST, "
            "otherwise the embedded PostgreSQL.",
            show_default=False,
        ),
    ] = None
    data_dir: Annotated[
        Path | None,
        _option(
            "--data-dir",
            metavar="DIRECTORY",
            help="Use the embedded PostgreSQL in this directory. Overrides the environment.",
            show_default=False,
        ),
    ] = None
    json: Annotated[
        bool, _option("--json", help="Print JSON: one document, or one line per event in lists of events.")
    ] = False
    quiet: Annotated[bool, _option("--quiet", "-q", help="Print results and errors only.")] = False
    verbose: Annotated[bool, _option("--verbose", "-v", help="Print log messages and the causes of errors.")] = False
    server: Annotated[
        str | None,
        _option(
            "--server",
            metavar="URL",
            help="Use this Penstock server instead of a database, like PENSTOCK_URL. PENSTOCK_API_KEY holds the API "
            "key.",
            show_default=False,
        ),
    ] = None

    def override(self, root: SharedOptions) -> SharedOptions:
        """Merge these options, given after the command, with those given before it. These take precedence."""
        has_target = self.database_url is not None or self.data_dir is not None or self.server is not None
        target = self if has_target else root
        if target.database_url is not None and target.data_dir is not None:
            raise typer.BadParameter("--database-url and --data-dir name two databases: give one of them")
        if target.server is not None and (target.database_url is not None or target.data_dir is not None):
            raise typer.BadParameter("--server names a server, which has its own database: give one of them")
        quiet, verbose = self.quiet or root.quiet, self.verbose or root.verbose
        if quiet and verbose:
            raise typer.BadParameter("--quiet and --verbose exclude each other: give one of them")
        return SharedOptions(
            target.database_url, target.data_dir, self.json or root.json, quiet, verbose, target.server
        )


class CommandSession:
    """The first argument of every command."""

    def __init__(self, options: SharedOptions) -> None:
        self.options = options
        self.out = Output(json=options.json, quiet=options.quiet, verbose=options.verbose)

    def settings(self) -> Settings:
        """Return the settings of a command that needs the database: from the options, else from the environment."""
        if self.options.server is not None:
            raise typer.BadParameter(
                "this command works on the database itself, and --server names a server: name the database with "
                "--database-url"
            )
        return self._settings()

    def uses_server(self) -> bool:
        """Return whether the options or the environment name a Penstock server."""
        return self._settings().url is not None

    def _settings(self) -> Settings:
        from penstock.core.settings import Settings, check_server_url

        if self.options.server is not None:
            url = check_server_url("--server", self.options.server)
            settings = Settings.from_env(database_url=None, url=url)
        elif self.options.data_dir is not None:
            data_dir = self.options.data_dir.expanduser().absolute()
            settings = Settings.from_env(database_url=None, url=None, data_dir=data_dir)
        elif self.options.database_url is not None:
            settings = Settings.from_env(
                database_url=self.options.database_url, database_source="--database-url", url=None
            )
        else:
            settings = Settings.from_env()
        self.out.configure_logging(settings.log_level)
        return settings

    @asynccontextmanager
    async def log(self) -> AsyncIterator[Log]:
        """Open the log in the database. Starts the embedded PostgreSQL if that is the database."""
        settings = self.settings()
        from penstock.db.pool import Database
        from penstock.log.log import Log

        log = Log(Database(settings), retry_seconds=_RETRY_SECONDS)
        with self.out.spinner("Opening the database"):
            await log.open()
        try:
            yield log
        finally:
            await log.close()

    @asynccontextmanager
    async def transport(self) -> AsyncIterator[Transport]:
        """Open the queues, in the database or on the server that the options name."""
        settings = self._settings()
        from penstock.client.connect import transport_for

        if "PENSTOCK_RETRY_SECONDS" not in os.environ:
            settings = replace(settings, retry_seconds=_RETRY_SECONDS)
        transport = transport_for(settings, wait_for_room=False)
        with self.out.spinner("Opening the database") if settings.url is None else nullcontext():
            await transport.open()
        try:
            yield transport
        finally:
            await transport.close()


async def find_queue(transport: Transport | Log, name: str) -> Queue:
    """Return the queue, or raise NotFound with similar names, or with the command that creates it."""
    try:
        return await transport.queue(name)
    except NotFound:
        from penstock.log.catalog import missing_queue

        known: list[str] = []
        with suppress(PenstockError):
            known = [queue.name for queue in await transport.queues()]
        raise missing_queue(name, known) from None
