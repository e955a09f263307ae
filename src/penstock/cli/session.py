"""One run of the command line: what its shared options say, its output, and the way to the log."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from penstock.cli.output import Output

if TYPE_CHECKING:
    from penstock.client.transport import Transport
    from penstock.core.settings import Settings
    from penstock.db.pool import Database
    from penstock.log.log import Log
    from penstock.log.queue import Queue

#: A person waits: what cannot be done in this time is reported instead.
_RETRY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Choices:
    """What the options that every command has were given."""

    database_url: str | None = None
    data_dir: Path | None = None
    json: bool = False
    quiet: bool = False
    verbose: bool = False
    server: str | None = None

    def over(self, before: Choices) -> Choices:
        """These choices, given after the command, on top of those that were given before it."""
        named = (self.database_url, self.data_dir, self.server)
        where = self if any(each is not None for each in named) else before
        if where.database_url is not None and where.data_dir is not None:
            raise typer.BadParameter("--database-url and --data-dir name two databases: give one of them")
        if where.server is not None and (where.database_url is not None or where.data_dir is not None):
            raise typer.BadParameter("--server names a server, which has a database of its own: give one of them")
        quiet, verbose = self.quiet or before.quiet, self.verbose or before.verbose
        if quiet and verbose:
            raise typer.BadParameter("--quiet and --verbose exclude each other: give one of them")
        return Choices(where.database_url, where.data_dir, self.json or before.json, quiet, verbose, where.server)


class Opened(NamedTuple):
    """The log, and the database that it is in."""

    log: Log
    database: Database


class Session:
    """What a command works with."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.out = Output(json=choices.json, quiet=choices.quiet, verbose=choices.verbose)

    def settings(self) -> Settings:
        """The settings of what works on the database itself: from the options, else from the environment."""
        if self.choices.server is not None:
            raise typer.BadParameter(
                "this command works on the database itself, and --server names a server: run it where the database is, "
                "or say which with --database-url"
            )
        return self._settings()

    def asks_server(self) -> bool:
        """Whether the queues are those of a server."""
        return self._settings().url is not None

    def _settings(self) -> Settings:
        from penstock.core.settings import Settings

        if self.choices.server is not None:
            settings = Settings.from_env(database_url=None, url=self.choices.server)
        elif self.choices.data_dir is not None:
            data_dir = self.choices.data_dir.expanduser().absolute()
            settings = Settings.from_env(database_url=None, url=None, data_dir=data_dir)
        elif self.choices.database_url is not None:
            settings = Settings.from_env(database_url=self.choices.database_url, url=None)
        else:
            settings = Settings.from_env()
        self.out.log_from(settings.log_level)
        return settings

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Opened]:
        """Open the log, starting the embedded PostgreSQL if that is the database."""
        settings = self.settings()
        from penstock.db.pool import Database
        from penstock.log.log import Log

        database = Database(settings)
        log = Log(database, retry_seconds=_RETRY_SECONDS)
        with self.out.busy("Opening the database"):
            await log.open()
        try:
            yield Opened(log, database)
        finally:
            await log.close()

    @asynccontextmanager
    async def transport(self) -> AsyncIterator[Transport]:
        """The queues, wherever they are: in the database, or behind the server that was named."""
        settings = self._settings()
        from penstock.client.connect import transport_for

        if "PENSTOCK_RETRY_SECONDS" not in os.environ:
            settings = replace(settings, retry_seconds=_RETRY_SECONDS)
        transport = transport_for(settings, wait_for_room=False)
        with self.out.busy("Opening the database") if settings.url is None else nullcontext():
            await transport.open()
        try:
            yield transport
        finally:
            await transport.close()

    @asynccontextmanager
    async def log(self) -> AsyncIterator[Log]:
        """Open the log, for those who need nothing else."""
        async with self.opened() as opened:
            yield opened.log


async def find_queue(transport: Transport, name: str) -> Queue:
    """Return the queue, or raise NotFound with the command that would make it."""
    from penstock.core.errors import NotFound

    try:
        return await transport.queue(name)
    except NotFound:
        raise NotFound(f"there is no queue {name!r}: create it with `penstock queue create {name}`") from None
