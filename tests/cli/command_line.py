"""The command line as a test uses it: in this process for speed, or in another where that is the point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from typer.testing import CliRunner, Result

from penstock.cli.app import app
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.log import Log

#: What could lead a command to another database than the test's.
FOREIGN = (
    "DATABASE_URL",
    "PENSTOCK_URL",
    "PENSTOCK_API_KEY",
    "PENSTOCK_DATABASE_URL",
    "PENSTOCK_DATA_DIR",
    "PGHOST",
    "PGHOSTADDR",
    "PGPORT",
    "PGDATABASE",
)


class CommandLine:
    """Runs commands on one database."""

    def __init__(self, database_url: str | None, server_url: str | None = None) -> None:
        self.database_url = database_url
        self.environment: dict[str, str | None] = dict.fromkeys(FOREIGN)
        if server_url is not None:
            self.environment["PENSTOCK_URL"] = server_url
        elif database_url is not None:
            self.environment["PENSTOCK_DATABASE_URL"] = database_url

    def __call__(self, *arguments: str, input: str | None = None) -> Result:
        """Run a command, whatever comes of it."""
        result = CliRunner().invoke(app, list(arguments), input=input, env=self.environment, prog_name="penstock")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def ok(self, *arguments: str, input: str | None = None) -> str:
        """Run a command that has to succeed, and return what it prints."""
        result = self(*arguments, input=input)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *arguments: str, input: str | None = None) -> Any:
        """Run a command that has to succeed, and return the document that it prints."""
        return json.loads(self.ok(*arguments, "--json", input=input))

    def json_lines(self, *arguments: str) -> list[Any]:
        """Run a command that has to succeed, and return the documents that it prints, one a line."""
        return [json.loads(line) for line in self.ok(*arguments, "--json").splitlines()]

    def refused(self, *arguments: str, input: str | None = None) -> tuple[int, str]:
        """Run a command that has to fail; return its exit code and the line it prints on standard error."""
        result = self(*arguments, input=input)
        assert result.exit_code != 0, result.output
        assert result.stdout == ""
        line = result.stderr.rstrip("\n")
        assert "\n" not in line
        assert line.startswith("error: ")
        return result.exit_code, line

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command in a process of its own."""
        kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        given = {name: value for name, value in self.environment.items() if value is not None}
        command = [sys.executable, "-m", "penstock", *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        return subprocess.Popen(command, env=kept | given, **pipes)

    def log(self) -> AbstractAsyncContextManager[Log]:
        """The log itself, to arrange what the command line cannot."""
        return OpenLog(Settings(database_url=self.database_url))


class OpenLog(AbstractAsyncContextManager[Log]):
    """A log that is open for a while."""

    def __init__(self, settings: Settings) -> None:
        self._log = Log(Database(settings))

    async def __aenter__(self) -> Log:
        return await self._log.open()

    async def __aexit__(self, *error: object) -> None:
        await self._log.close()


#: Does to the log what the command line has no command for.
Arrange = Callable[[Callable[[Log], Awaitable[object]]], None]
