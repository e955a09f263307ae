"""Finds the connection string: in the environment of Spark's driver or in a file, never in an option.

Everyone who can see a query's plan sees the options of its sources. So an option names the variable or the file. The
driver's Python process reads the connection string, and the pickled readers and writers carry it to the tasks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from penstock.core.errors import ConfigurationError, InvalidOption
from penstock.core.settings import Settings, check_database_url

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
