"""Settings of a Penstock process, read from environment variables.

==========================  ===========================================================  ==================
variable                    meaning                                                      default
==========================  ===========================================================  ==================
PENSTOCK_URL                Penstock server to use in place of a database                none
PENSTOCK_API_KEY            API key or bearer token for that server                      none
PENSTOCK_TLS_CA_FILE        certificates to trust, in place of the system's              none
PENSTOCK_RETRY_SECONDS      how long to retry a lost server or database                  30
PENSTOCK_DATABASE_URL       PostgreSQL to use: a libpq URI or ``key=value`` string       see below
PENSTOCK_READER_URL         read-only login to the same database, for ad-hoc SQL         none
PENSTOCK_DATA_DIR           directory of the embedded PostgreSQL                         the user's data dir
PENSTOCK_POOL_SIZE          maximum connections of one process                           8
PENSTOCK_FAST_DATABASE      0: use psycopg's own connections, pool and cursors           1
PENSTOCK_MAX_EVENT_BYTES    maximum size of an event                                     1048576
PENSTOCK_AUTO_UPGRADE       0: never change the schema, refuse to run on another one     1
PENSTOCK_LOG_LEVEL          DEBUG, INFO, WARNING, ERROR or CRITICAL                      WARNING
PENSTOCK_TRACING            1: send OpenTelemetry spans of requests and cycles           0
==========================  ===========================================================  ==================

Without PENSTOCK_DATABASE_URL, the database is the one of DATABASE_URL, else the one of libpq's own variables (PGHOST,
PGSERVICE, ...), else the embedded PostgreSQL. An empty variable counts as not set.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, Unpack
from urllib.parse import urlsplit

import platformdirs
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from penstock.core.errors import ConfigurationError

LIBPQ_VARIABLES = ("PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGSERVICE")
"""The variables of libpq that select a server or database."""

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

# Events are stored together in one bytea, which PostgreSQL limits to 1 GiB.
_MAX_EVENT_BYTES = 128 * 1024 * 1024
_MAX_POOL_SIZE = 1000
_MAX_RETRY_SECONDS = 86_400
_ON = ("1", "true", "yes", "on")
_OFF = ("0", "false", "no", "off")


def default_data_dir() -> Path:
    """Return the directory of the embedded PostgreSQL if PENSTOCK_DATA_DIR is not set."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # PostgreSQL does not run as root, and its account cannot read root's home.
        return Path("/var/lib/penstock")
    try:
        return Path(platformdirs.user_data_dir("penstock", appauthor=False))
    except RuntimeError:
        # The user has no home. A relative path is refused if the embedded PostgreSQL is needed.
        return Path("penstock")


class Overrides(TypedDict, total=False):
    """Settings that override the environment, for example from the command line."""

    database_url: str | None
    database_source: str
    reader_url: str | None
    data_dir: Path
    pool_size: int
    fast_database: bool
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
    """Settings of a Penstock process.

    ``database_url`` is a libpq URI or ``key=value`` string. ``""`` means the database of libpq's own variables,
    ``None`` the embedded PostgreSQL in ``data_dir``. It may contain a password, so the repr omits it; print
    ``redacted_url`` instead. ``url`` is a Penstock server for clients. The server and the engine themselves ignore it.

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
    #: Read-only login to the same database, for ad-hoc SQL.
    reader_url: str | None = field(default=None, repr=False)
    #: Send OpenTelemetry spans.
    tracing: bool = False
    #: Use the connection, pool and prepared statements of :mod:`penstock.db.fast` in place of psycopg's.
    fast_database: bool = True
    #: The variable, argument or option that named the database, for messages.
    database_source: str = "PENSTOCK_DATABASE_URL"

    def __post_init__(self) -> None:
        if self.database_url is not None:
            check_database_url(self.database_source, self.database_url)
        elif not self.data_dir.is_absolute():
            raise ConfigurationError(
                f"PENSTOCK_DATA_DIR is {str(self.data_dir)!r}, which is not an absolute path: set it to one, such as "
                "/var/lib/penstock, or set PENSTOCK_DATABASE_URL to a PostgreSQL that you run"
            )
        if self.reader_url is not None:
            check_database_url("PENSTOCK_READER_URL", self.reader_url)
        _check_range("PENSTOCK_POOL_SIZE", self.pool_size, _MAX_POOL_SIZE)
        _check_range("PENSTOCK_MAX_EVENT_BYTES", self.max_event_bytes, _MAX_EVENT_BYTES)
        if self.url is not None:
            check_server_url("PENSTOCK_URL", self.url)
        if not 0 <= self.retry_seconds <= _MAX_RETRY_SECONDS:
            raise ConfigurationError(
                f"PENSTOCK_RETRY_SECONDS is {self.retry_seconds}: set it to a number from 0 to {_MAX_RETRY_SECONDS}"
            )
        if self.log_level not in LOG_LEVELS:
            raise ConfigurationError(
                f"PENSTOCK_LOG_LEVEL is {self.log_level!r}: set it to one of {', '.join(LOG_LEVELS)}"
            )

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ, **overrides: Unpack[Overrides]) -> Settings:
        """Read the settings from ``environ``. Keyword arguments win, and their variables are not read."""
        env = {name: value.strip() for name, value in environ.items() if value.strip()}
        values: dict[str, Any] = {**overrides}
        if "database_url" not in values:
            values["database_url"], values["database_source"] = _find_database_url(env)
        for setting, (variable, parse) in _VARIABLES.items():
            if setting not in values and variable in env:
                values[setting] = parse(variable, env[variable])
        return cls(**values)

    @property
    def redacted_url(self) -> str:
        """The database without its password, for messages and logs."""
        if self.database_url is None:
            return f"embedded PostgreSQL in {self.data_dir}"
        return redact(self.database_url) or "the PostgreSQL of PGHOST, PGSERVICE and the other variables of libpq"


def redact(conninfo: str) -> str:
    """Return a libpq connection string in ``key=value`` form with every secret replaced by ``***``."""
    # libpq marks its secret options, so this covers those of later versions too.
    secret = {option.keyword.decode() for option in Conninfo.get_defaults() if option.dispchar == b"*"}
    parts = conninfo_to_dict(conninfo)
    return make_conninfo("", **{key: "***" if key in secret else value for key, value in parts.items()})


def check_server_url(name: str, url: str) -> str:
    """Return the URL of a server, or raise ConfigurationError."""
    parts = urlsplit(url)
    try:
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_http = False
    if not is_http or parts.query or parts.fragment or parts.username is not None:
        # The message does not quote the URL, which may contain a password.
        raise ConfigurationError(
            f"{name} is not the address of a server: write it as https://host:6632, without user, password or query; "
            "a key goes into PENSTOCK_API_KEY"
        )
    return url


def _find_database_url(env: Mapping[str, str]) -> tuple[str | None, str]:
    """Return the database of the environment, and the variable that names it."""
    for name in ("PENSTOCK_DATABASE_URL", "DATABASE_URL", *LIBPQ_VARIABLES):
        if name in env:
            return ("" if name in LIBPQ_VARIABLES else env[name]), name
    return None, "PENSTOCK_DATABASE_URL"


def check_database_url(name: str, value: str) -> None:
    """Raise ConfigurationError unless ``value`` is a connection string. The message does not quote it."""
    try:
        conninfo_to_dict(value)
    except psycopg.ProgrammingError:
        # libpq's own message quotes the string, which may contain a password.
        raise ConfigurationError(
            f"{name} is not a PostgreSQL connection string: write it as postgresql://user:password@host/db "
            "(no '+driver' after 'postgresql', special characters %-encoded) or as 'host=... dbname=...', "
            "or set PENSTOCK_DATABASE_URL, which takes precedence"
        ) from None


def _check_range(name: str, value: int, highest: int) -> None:
    if not 1 <= value <= highest:
        raise ConfigurationError(f"{name} is {value}: set it to a whole number from 1 to {highest}")


def parse_integer(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ConfigurationError(f"{name} is {value!r}: set it to a whole number, in digits") from None


def parse_number(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ConfigurationError(f"{name} is {value!r}: set it to a number") from None


def parse_switch(name: str, value: str) -> bool:
    if value.lower() not in (*_ON, *_OFF):
        raise ConfigurationError(f"{name} is {value!r}: set it to 1 (on) or 0 (off)")
    return value.lower() in _ON


def _parse_directory(name: str, value: str) -> Path:
    try:
        path = Path(value).expanduser()
    except RuntimeError:
        raise ConfigurationError(
            f"{name} is {value!r}, but this user has no home directory: set it to an absolute path"
        ) from None
    if not path.is_absolute():
        # A relative path would select another database in every working directory.
        raise ConfigurationError(f"{name} is {value!r}: set it to an absolute path, such as {path.absolute()}")
    return path


def _parse_text(name: str, value: str) -> str:
    return value


_VARIABLES: Mapping[str, tuple[str, Callable[[str, str], object]]] = {
    "reader_url": ("PENSTOCK_READER_URL", _parse_text),
    "data_dir": ("PENSTOCK_DATA_DIR", _parse_directory),
    "pool_size": ("PENSTOCK_POOL_SIZE", parse_integer),
    "fast_database": ("PENSTOCK_FAST_DATABASE", parse_switch),
    "max_event_bytes": ("PENSTOCK_MAX_EVENT_BYTES", parse_integer),
    "auto_upgrade": ("PENSTOCK_AUTO_UPGRADE", parse_switch),
    "log_level": ("PENSTOCK_LOG_LEVEL", lambda name, value: value.upper()),
    "tracing": ("PENSTOCK_TRACING", parse_switch),
    "url": ("PENSTOCK_URL", _parse_text),
    "api_key": ("PENSTOCK_API_KEY", _parse_text),
    "tls_ca_file": ("PENSTOCK_TLS_CA_FILE", lambda name, value: Path(value)),
    "retry_seconds": ("PENSTOCK_RETRY_SECONDS", parse_number),
}
"""Environment variable and parser of each setting but ``database_url``."""


def child_environment(settings: Settings) -> dict[str, str]:
    """Return the environment of a child process that uses the same database.

    Options would show the password of the database to other users of the machine.
    """
    environment = dict(os.environ)
    environment.pop("PENSTOCK_URL", None)
    if settings.database_url is None:
        for name in ("PENSTOCK_DATABASE_URL", "DATABASE_URL", *LIBPQ_VARIABLES):
            environment.pop(name, None)
        environment["PENSTOCK_DATA_DIR"] = str(settings.data_dir)
    elif settings.database_url:
        environment["PENSTOCK_DATABASE_URL"] = settings.database_url
    return environment
