"""The transport that keeps the queues in a PostgreSQL which this process connects to."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.core.clock import Clock
from penstock.core.errors import ConfigurationError
from penstock.core.settings import Overrides, Settings
from penstock.db.pool import Database
from penstock.log.log import Log
from penstock.log.queue import Queue


class DatabaseTransport(Log):
    """The log itself."""

    async def queue(self, name: str) -> Queue:
        """A queue as it was at most a second ago."""
        return await self.catalog.get(name)


def connect(
    url: str | None,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    pool_size: int | None = None,
    max_event_bytes: int | None = None,
    auto_upgrade: bool | None = None,
    clock: Clock | None = None,
) -> DatabaseTransport:
    """A transport for the database that is meant, not opened yet; what is not said comes from the environment."""
    given: Overrides = {}
    if url is not None:
        given["database_url"] = _check_url(url)
    if data_dir is not None:
        if url is not None:
            raise ConfigurationError(
                "both a url and a data_dir were given: a url names a PostgreSQL that runs already, a data_dir is "
                "where one is started; give one of the two"
            )
        # Who names a directory means the PostgreSQL in it, whatever the environment says.
        given["database_url"] = None
        given["data_dir"] = Path(data_dir).expanduser().absolute()
    if pool_size is not None:
        given["pool_size"] = _check_count("pool_size", pool_size)
    if max_event_bytes is not None:
        given["max_event_bytes"] = _check_count("max_event_bytes", max_event_bytes)
    if auto_upgrade is not None:
        given["auto_upgrade"] = auto_upgrade
    return DatabaseTransport(Database(Settings.from_env(**given)), clock=clock)


def _check_url(url: object) -> str:
    if not isinstance(url, str):
        raise ConfigurationError(f"the url must be text such as postgresql://host/db, not {type(url).__name__}")
    if url.lower().startswith(("http://", "https://")):
        raise ConfigurationError(
            "the url is one of a server, and the client that speaks HTTP comes with the server, in a later release; "
            "give the PostgreSQL itself for now, as postgresql://user@host/db"
        )
    if not url.strip():
        raise ConfigurationError(
            "the url is empty: give postgresql://user@host/db, or leave it out to use PENSTOCK_DATABASE_URL"
        )
    return url


def _check_count(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"{name} must be a whole number from 1 on, not {value!r}")
    return value
