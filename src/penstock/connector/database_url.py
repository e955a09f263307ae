"""Finds the connection string, in the environment of Spark's driver or in a file, never in an option; and connects.

Everyone who can see a query's plan sees the options of its sources. So an option names the variable or the file. The
driver's Python process reads the connection string, and the pickled readers and writers carry it to the tasks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from penstock.core.errors import ConfigurationError, InvalidOption
from penstock.core.settings import Settings, check_database_url
from penstock.db.retry import CONNECTION_ERRORS, DatabaseRetry
from penstock.db.sync_connection import connect

_DEFAULT_VARIABLE = "PENSTOCK_DATABASE_URL"


class Conninfo:
    """A connection string that is not printed."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return "Conninfo(***)"

    def reveal(self) -> str:
        return self._text


def find_database(options: Mapping[str, str]) -> Conninfo:
    """Return the connection string that the options or the environment name."""
    given = {name.lower(): value for name, value in options.items()}
    variable, file = given.get("databaseurlenv"), given.get("databaseurlfile")
    if variable is not None and file is not None:
        raise InvalidOption(
            "option 'databaseUrlFile' names the database, and so does 'databaseUrlEnv': give one of the two",
            option="databaseUrlFile",
        )
    if file is not None:
        return _check(f"the file of option 'databaseUrlFile' ({file})", _read_file(file))
    if variable is not None:
        value = os.environ.get(variable, "").strip()
        if not value:
            raise InvalidOption(
                f"option 'databaseUrlEnv' names {variable!r}, and that is not set where Spark's driver runs: set it "
                "there, before Spark starts",
                option="databaseUrlEnv",
            )
        return _check(variable, value)
    url = Settings.from_env().database_url
    if url is None:
        raise ConfigurationError(
            f"no database is named: set {_DEFAULT_VARIABLE} where Spark's driver runs, before Spark starts, or name a "
            "variable with the option 'databaseUrlEnv', or a file with 'databaseUrlFile'"
        )
    return Conninfo(url)


def _read_file(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidOption(
            f"option 'databaseUrlFile' names {file!r}, which cannot be read where Spark's driver runs: {reason}",
            option="databaseUrlFile",
        ) from None


def _check(name: str, url: str) -> Conninfo:
    check_database_url(name, url)
    return Conninfo(url)


_T = TypeVar("_T")

_RETRY_SECONDS = 30.0


class RetryingConnection:
    """Runs idempotent operations, and runs them again if the connection is lost. It connects on first use."""

    def __init__(self, database: Conninfo) -> None:
        self._database = database
        self._conn: psycopg.Connection[Any] | None = None

    def run(self, operation: Callable[[psycopg.Connection[Any]], _T]) -> _T:
        """Run an operation. Raises DatabaseUnavailable if the database cannot be reached for too long."""
        retry = DatabaseRetry(_RETRY_SECONDS)
        while True:
            try:
                if self._conn is None:
                    self._conn = connect(self._database.reveal(), "connector")
                    self._conn.execute("LISTEN penstock")
                return operation(self._conn)
            except CONNECTION_ERRORS as error:
                self.close()
                time.sleep(retry.next_pause(error))

    def wait_for_push(self, seconds: float) -> None:
        """Wait until events are pushed to any queue, for at most ``seconds``."""

        def wait(conn: psycopg.Connection[Any]) -> None:
            for _ in conn.notifies(timeout=seconds, stop_after=1):
                pass

        self.run(wait)

    def close(self) -> None:
        """Close the connection. The next operation opens a new one."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None
