"""How to reach the database: from the environment of Spark's driver or out of a file, never from an option itself.

Spark shows the options of a source to whoever may see its plans. So an option names where the connection string is, the
driver's Python reads it there, and it travels to the tasks within what they run, which nobody prints.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from penstock.core.errors import ConfigurationError, InvalidOption
from penstock.core.settings import Settings, check_database_url

_USUAL = "PENSTOCK_DATABASE_URL"


class Conninfo:
    """A connection string, which does not show when it is printed."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return "Conninfo(***)"

    def reveal(self) -> str:
        """The string itself, for the driver of PostgreSQL."""
        return self._text


def find_database(options: Mapping[str, str]) -> Conninfo:
    """The database that the options or the environment name."""
    given = {name.lower(): value for name, value in options.items()}
    variable, file = given.get("databaseurlenv"), given.get("databaseurlfile")
    if variable is not None and file is not None:
        raise InvalidOption(
            "option 'databaseUrlFile' says where the database is, and so does 'databaseUrlEnv': give one of the two",
            option="databaseUrlFile",
        )
    if file is not None:
        return _checked(f"the file of option 'databaseUrlFile' ({file})", _content(file))
    if variable is not None:
        value = os.environ.get(variable, "").strip()
        if not value:
            raise InvalidOption(
                f"option 'databaseUrlEnv' names {variable!r}, and that is not set where Spark's driver runs: set it "
                "there, before Spark starts",
                option="databaseUrlEnv",
            )
        return _checked(variable, value)
    found = Settings.from_env().database_url
    if found is None:
        raise ConfigurationError(
            f"no database is named: set {_USUAL} where Spark's driver runs, before Spark starts, or name a variable "
            "with the option 'databaseUrlEnv', or a file that holds it with 'databaseUrlFile'"
        )
    return Conninfo(found)


def _content(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidOption(
            f"option 'databaseUrlFile' names {file!r}, which cannot be read where Spark's driver runs: {reason}",
            option="databaseUrlFile",
        ) from None


def _checked(name: str, url: str) -> Conninfo:
    check_database_url(name, url)
    return Conninfo(url)
