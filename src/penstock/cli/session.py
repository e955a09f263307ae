"""One run of the command line: what its shared options say, its output, and the way to the log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from penstock.cli.output import Output

if TYPE_CHECKING:
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

    def over(self, before: Choices) -> Choices:
        """These choices, given after the command, on top of those that were given before it."""
        where = self if self.database_url is not None or self.data_dir is not None else before
        if where.database_url is not None and where.data_dir is not None:
            raise typer.BadParameter("--database-url and --data-dir name two databases: give one of them")
        quiet, verbose = self.quiet or before.quiet, self.verbose or before.verbose
        if quiet and verbose:
            raise typer.BadParameter("--quiet and --verbose exclude each other: give one of them")
        return Choices(where.database_url, where.data_dir, self.json or before.json, quiet, verbose)


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
        """The settings: from the options, else from the environment."""
        from penstock.core.settings import Settings

        if self.choices.data_dir is not None:
            settings = Settings.from_env(database_url=None, data_dir=self.choices.data_dir.expanduser().absolute())
        elif self.choices.database_url is not None:
            settings = Settings.from_env(database_url=self.choices.database_url)
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
    async def log(self) -> AsyncIterator[Log]:
        """Open the log, for those who need nothing else."""
        async with self.opened() as opened:
            yield opened.log


async def find_queue(log: Log, name: str) -> Queue:
    """Return the queue, or raise NotFound with the command that would make it."""
    from penstock.core.errors import NotFound

    queue = await log.catalog.find(name)
    if queue is None:
        raise NotFound(f"there is no queue {name!r}: create it with `penstock queue create {name}`")
    return queue
