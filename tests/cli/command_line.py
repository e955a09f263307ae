"""Runs commands for tests, in this process for speed or in a child process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any

import typer
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.log.log import Log
from tests.log.logs import opened

#: Environment variables that could select another database than that of the test.
DATABASE_VARIABLES = (
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


@dataclass(frozen=True)
class Result:
    exit_code: int
    stdout: str
    stderr: str
    #: Both, as a terminal shows them.
    output: str


@cache
def root_command() -> Any:
    """Build the tree of commands, which takes longer than most commands run."""
    return typer.main.get_command(app)


class CommandLine:
    """Runs commands on one database or server."""

    def __init__(self, database_url: str | None, server_url: str | None = None) -> None:
        self.database_url = database_url
        self.environment: dict[str, str | None] = dict.fromkeys(DATABASE_VARIABLES)
        if server_url is not None:
            self.environment["PENSTOCK_URL"] = server_url
        elif database_url is not None:
            self.environment["PENSTOCK_DATABASE_URL"] = database_url

    def __call__(self, *arguments: str, input: str | None = None) -> Result:
        """Run a command and return its result."""
        with CliRunner().isolation(input=input, env=self.environment) as streams:
            exit_code = 0
            try:
                root_command().main(args=list(arguments), prog_name="penstock")
            except SystemExit as error:
                if isinstance(error.code, str):
                    print(error.code)
                exit_code = 1 if isinstance(error.code, str) else error.code or 0
            sys.stdout.flush()
            sys.stderr.flush()
            texts = [stream.getvalue().decode() for stream in streams]
        return Result(exit_code, *texts)

    def ok(self, *arguments: str, input: str | None = None) -> str:
        """Run a command that must succeed, and return its standard output."""
        result = self(*arguments, input=input)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *arguments: str, input: str | None = None) -> Any:
        """Run a command that must succeed, and return the JSON document that it prints."""
        return json.loads(self.ok(*arguments, "--json", input=input))

    def json_lines(self, *arguments: str) -> list[Any]:
        """Run a command that must succeed, and return the JSON documents that it prints, one per line."""
        return [json.loads(line) for line in self.ok(*arguments, "--json").splitlines()]

    def error(self, *arguments: str, input: str | None = None) -> tuple[int, str]:
        """Run a command that must fail; return its exit code and the line it prints to standard error."""
        result = self(*arguments, input=input)
        assert result.exit_code != 0, result.output
        assert result.stdout == ""
        line = result.stderr.rstrip("\n")
        assert "\n" not in line
        assert line.startswith("error: ")
        return result.exit_code, line

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command in a child process."""
        inherited = {name: value for name, value in os.environ.items() if name not in DATABASE_VARIABLES}
        own = {name: value for name, value in self.environment.items() if value is not None}
        command = [sys.executable, "-m", "penstock", *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        return subprocess.Popen(command, env=inherited | own, **pipes)

    def log(self) -> AbstractAsyncContextManager[Log]:
        """Open the log, for setup that no command offers."""
        assert self.database_url is not None
        return opened(self.database_url)


#: Runs a function on the open log, for setup that no command offers.
Arrange = Callable[[Callable[[Log], Awaitable[object]]], None]
