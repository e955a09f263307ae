"""Penstock's settings, read once from the environment and handed to whoever needs them.

==========================  ===========================================================  ==================
variable                    meaning                                                      default
==========================  ===========================================================  ==================
PENSTOCK_URL                a Penstock server to ask in place of a database              none
PENSTOCK_API_KEY            the key, or the bearer token, that the server wants          none
PENSTOCK_TLS_CA_FILE        the certificates to trust, if not those of the system        none
PENSTOCK_RETRY_SECONDS      how long a lost server or database is looked for             30
PENSTOCK_DATABASE_URL       the PostgreSQL to use: a libpq URI or ``key=value`` string   see below
PENSTOCK_DATA_DIR           where the embedded PostgreSQL keeps its data                 the user's data dir
PENSTOCK_POOL_SIZE          most connections that one process opens                      8
PENSTOCK_MAX_EVENT_BYTES    largest event that is accepted                               1048576
PENSTOCK_AUTO_UPGRADE       0: never change the schema, refuse to run on another one     1
PENSTOCK_LOG_LEVEL          DEBUG, INFO, WARNING, ERROR or CRITICAL                      WARNING
PENSTOCK_TRACING            1: make spans of requests and cycles, and send them          0
==========================  ===========================================================  ==================

Without PENSTOCK_DATABASE_URL the database is the one that DATABASE_URL names, else the one that libpq's own
variables (PGHOST, PGSERVICE, ...) name, else a PostgreSQL that comes with Penstock. A variable that is set to
nothing counts as not set.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict, Unpack
from urllib.parse import urlsplit

import platformdirs
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from penstock.core.errors import ConfigurationError

LIBPQ_VARIABLES = ("PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGSERVICE")
"""The variables of libpq that say which server or database is meant."""

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

# An event travels inside a bytea with others, and PostgreSQL ends a value at 1 GiB.
_LARGEST_EVENT = 128 * 1024 * 1024
_MOST_CONNECTIONS = 1000
_LONGEST_RETRY = 86_400
_ON = ("1", "true", "yes", "on")
_OFF = ("0", "false", "no", "off")


def default_data_dir() -> Path:
    """Return where the embedded PostgreSQL lives unless PENSTOCK_DATA_DIR says otherwise."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # PostgreSQL refuses to run as root, and the account it runs as cannot look into root's home.
        return Path("/var/lib/penstock")
    try:
        return Path(platformdirs.user_data_dir("penstock", appauthor=False))
    except RuntimeError:
        # A user without a home: refused, being relative, if the embedded PostgreSQL turns out to be needed.
        return Path("penstock")


class Overrides(TypedDict, total=False):
    """What a caller may set in place of the environment, e.g. from the command line."""

    database_url: str | None
    reader_url: str | None
    data_dir: Path
    pool_size: int
    max_event_bytes: int
    auto_upgrade: bool
    log_level: str
    tracing: bool
    url: str | None
    api_key: str | None
    tls_ca_file: Path | None
    retry_seconds: float


@dataclass(frozen=True, slots=True)
class Settings:
    """How this process is to run.

    ``database_url`` is a libpq URI or ``key=value`` string; ``""`` means "as libpq's own variables say" and
    ``None`` the embedded PostgreSQL in ``data_dir``. It may hold a password, so it never shows in a repr;
    print ``redacted_url`` instead. ``url`` is a Penstock server that clients ask in place of a database; what runs on
    the database itself, as the server and the engine do, does not look at it.

    >>> Settings.from_env({"PENSTOCK_DATABASE_URL": "postgresql://app:s3cret@db/events"}).redacted_url
    'user=app password=*** dbname=events host=db'
    """

    database_url: str | None = field(default=None, repr=False)
    data_dir: Path = field(default_factory=default_data_dir)
    pool_size: int = 8
    max_event_bytes: int = 1024 * 1024
    auto_upgrade: bool = True
    log_level: str = "WARNING"
    url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    tls_ca_file: Path | None = None
    retry_seconds: float = 30.0
    #: A login to the same database that may look and nothing else, for statements that people type.
    reader_url: str | None = field(default=None, repr=False)
    #: Make OpenTelemetry spans of what is done, and send them.
    tracing: bool = False

    def __post_init__(self) -> None:
        if self.database_url is not None:
            check_database_url("PENSTOCK_DATABASE_URL", self.database_url)
        elif not self.data_dir.is_absolute():
            raise ConfigurationError(
                f"PENSTOCK_DATA_DIR has to name an absolute path, and {str(self.data_dir)!r} is none: set it to one, "
                "say /var/lib/penstock, or set PENSTOCK_DATABASE_URL to a PostgreSQL that you run"
            )
        if self.reader_url is not None:
            check_database_url("PENSTOCK_READER_URL", self.reader_url)
        _check_range("PENSTOCK_POOL_SIZE", self.pool_size, _MOST_CONNECTIONS)
        _check_range("PENSTOCK_MAX_EVENT_BYTES", self.max_event_bytes, _LARGEST_EVENT)
        if self.url is not None:
            check_server_url("PENSTOCK_URL", self.url)
        if not 0 <= self.retry_seconds <= _LONGEST_RETRY:
            raise ConfigurationError(
                f"PENSTOCK_RETRY_SECONDS is {self.retry_seconds}: set it to a number from 0 to {_LONGEST_RETRY}"
            )
        if self.log_level not in LOG_LEVELS:
            raise ConfigurationError(
                f"PENSTOCK_LOG_LEVEL is {self.log_level!r}: set it to one of {', '.join(LOG_LEVELS)}"
            )

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ, **overrides: Unpack[Overrides]) -> Settings:
        """Read the settings from ``environ``; what is given by keyword wins and its variable is not read."""
        env = {name: value.strip() for name, value in environ.items() if value.strip()}
        found: Overrides = {}
        if "database_url" not in overrides:
            found["database_url"] = _find_url(env)
        if "reader_url" not in overrides and "PENSTOCK_READER_URL" in env:
            found["reader_url"] = env["PENSTOCK_READER_URL"]
        if "data_dir" not in overrides and "PENSTOCK_DATA_DIR" in env:
            found["data_dir"] = _directory("PENSTOCK_DATA_DIR", env["PENSTOCK_DATA_DIR"])
        if "pool_size" not in overrides and "PENSTOCK_POOL_SIZE" in env:
            found["pool_size"] = _integer("PENSTOCK_POOL_SIZE", env["PENSTOCK_POOL_SIZE"])
        if "max_event_bytes" not in overrides and "PENSTOCK_MAX_EVENT_BYTES" in env:
            found["max_event_bytes"] = _integer("PENSTOCK_MAX_EVENT_BYTES", env["PENSTOCK_MAX_EVENT_BYTES"])
        if "auto_upgrade" not in overrides and "PENSTOCK_AUTO_UPGRADE" in env:
            found["auto_upgrade"] = _switch("PENSTOCK_AUTO_UPGRADE", env["PENSTOCK_AUTO_UPGRADE"])
        if "log_level" not in overrides and "PENSTOCK_LOG_LEVEL" in env:
            found["log_level"] = env["PENSTOCK_LOG_LEVEL"].upper()
        if "tracing" not in overrides and "PENSTOCK_TRACING" in env:
            found["tracing"] = _switch("PENSTOCK_TRACING", env["PENSTOCK_TRACING"])
        if "url" not in overrides and "PENSTOCK_URL" in env:
            found["url"] = env["PENSTOCK_URL"]
        if "api_key" not in overrides and "PENSTOCK_API_KEY" in env:
            found["api_key"] = env["PENSTOCK_API_KEY"]
        if "tls_ca_file" not in overrides and "PENSTOCK_TLS_CA_FILE" in env:
            found["tls_ca_file"] = Path(env["PENSTOCK_TLS_CA_FILE"])
        if "retry_seconds" not in overrides and "PENSTOCK_RETRY_SECONDS" in env:
            found["retry_seconds"] = _seconds("PENSTOCK_RETRY_SECONDS", env["PENSTOCK_RETRY_SECONDS"])
        found.update(overrides)
        return cls(**found)

    @property
    def redacted_url(self) -> str:
        """The database in words that may be printed and logged: no password."""
        if self.database_url is None:
            return f"embedded PostgreSQL in {self.data_dir}"
        return redact(self.database_url) or "the PostgreSQL that PGHOST, PGSERVICE and their like name"


def redact(conninfo: str) -> str:
    """Return a libpq connection string in ``key=value`` form with every secret in it replaced by ``***``."""
    # libpq itself marks which of its options are secret, so a new one in a later libpq is covered too.
    secret = {option.keyword.decode() for option in Conninfo.get_defaults() if option.dispchar == b"*"}
    parts = conninfo_to_dict(conninfo)
    return make_conninfo("", **{key: "***" if key in secret else value for key, value in parts.items()})


def check_server_url(name: str, url: str) -> str:
    """Return the address of a server if it is one."""
    parts = urlsplit(url)
    try:
        there = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        there = False
    if not there or parts.query or parts.fragment or parts.username is not None:
        # It is not quoted: somebody may have written a password into it.
        raise ConfigurationError(
            f"{name} is not the address of a server: write it as https://host:6632, without user, password or query; "
            "a key goes into PENSTOCK_API_KEY"
        )
    return url


def _find_url(env: Mapping[str, str]) -> str | None:
    for name in ("PENSTOCK_DATABASE_URL", "DATABASE_URL"):
        if name in env:
            check_database_url(name, env[name])
            return env[name]
    return "" if any(name in env for name in LIBPQ_VARIABLES) else None


def check_database_url(name: str, value: str) -> None:
    """Refuse what is no connection string, without quoting it."""
    try:
        conninfo_to_dict(value)
    except psycopg.ProgrammingError:
        # libpq's own message quotes the string, which may hold a password.
        raise ConfigurationError(
            f"{name} is not a PostgreSQL connection string: write it as postgresql://user:password@host/db "
            "(no '+driver' after 'postgresql', special characters %-encoded) or as 'host=... dbname=...', "
            "or set PENSTOCK_DATABASE_URL, which is read first"
        ) from None


def _check_range(name: str, value: int, highest: int) -> None:
    if not 1 <= value <= highest:
        raise ConfigurationError(f"{name} is {value}: set it to a whole number from 1 to {highest}")


def _integer(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ConfigurationError(f"{name} is {value!r}: set it to a whole number, in digits") from None


def _seconds(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ConfigurationError(f"{name} is {value!r}: set it to a number of seconds") from None


def _switch(name: str, value: str) -> bool:
    if value.lower() not in (*_ON, *_OFF):
        raise ConfigurationError(f"{name} is {value!r}: set it to 1 (on) or 0 (off)")
    return value.lower() in _ON


def _directory(name: str, value: str) -> Path:
    try:
        path = Path(value).expanduser()
    except RuntimeError:
        raise ConfigurationError(
            f"{name} is {value!r}, and no such user with a home is known here: set it to an absolute path"
        ) from None
    if not path.is_absolute():
        # Relative, it would name another database from every working directory.
        raise ConfigurationError(f"{name} is {value!r}: set it to an absolute path, say {path.absolute()}")
    return path
