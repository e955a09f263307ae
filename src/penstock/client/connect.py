"""Chooses the transport of a client: PostgreSQL or an HTTP server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.clock import Clock
from penstock.core.errors import ConfigurationError
from penstock.core.settings import Overrides, Settings, check_server_url

if TYPE_CHECKING:
    from penstock.client.transport import Transport


def connect(
    url: str | None,
    *,
    api_key: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    pool_size: int | None = None,
    max_event_bytes: int | None = None,
    auto_upgrade: bool | None = None,
    retry_seconds: float | None = None,
    tls_ca_file: str | os.PathLike[str] | None = None,
    clock: Clock | None = None,
) -> Transport:
    """Return the transport for these arguments, not open yet; the environment fills in the arguments left out."""
    given: Overrides = {}
    if url is not None:
        _set_url(given, url)
    if data_dir is not None:
        if url is not None:
            raise ConfigurationError(
                "both a url and a data_dir were given: a url names a PostgreSQL or a server that is running, a "
                "data_dir is where the client starts a PostgreSQL; give one of the two"
            )
        # A data directory takes precedence over the environment.
        given["database_url"] = given["url"] = None
        given["data_dir"] = Path(data_dir).expanduser().absolute()
    if pool_size is not None:
        given["pool_size"] = _check_count("pool_size", pool_size)
    if max_event_bytes is not None:
        given["max_event_bytes"] = _check_count("max_event_bytes", max_event_bytes)
    if auto_upgrade is not None:
        given["auto_upgrade"] = auto_upgrade
    if api_key is not None:
        given["api_key"] = _check_key(api_key)
    if retry_seconds is not None:
        given["retry_seconds"] = _check_seconds(retry_seconds)
    if tls_ca_file is not None:
        given["tls_ca_file"] = Path(tls_ca_file)
    settings = Settings.from_env(**given)
    if settings.url is None and api_key is not None:
        raise ConfigurationError(
            "an api_key is for a server, and this client connects to a database: give the url of a server, such as "
            "https://host:6632, or leave the api_key out"
        )
    return transport_for(settings, clock=clock, connections=None if pool_size is None else settings.pool_size)


def transport_for(
    settings: Settings, *, clock: Clock | None = None, connections: int | None = None, wait_for_room: bool = True
) -> Transport:
    """Return the transport for the settings; ``wait_for_room`` makes a push over HTTP wait while its queue is full."""
    if settings.url is None:
        from penstock.client.transport import DatabaseTransport

        return DatabaseTransport(settings, clock)
    from penstock.client.http.http_transport import HttpTransport
    from penstock.client.http.retrying_http import RetryingHttpClient

    return HttpTransport(
        RetryingHttpClient(
            settings.url,
            api_key=settings.api_key,
            retry_seconds=settings.retry_seconds,
            ca_file=settings.tls_ca_file,
            connections=connections,
            wait_for_room=wait_for_room,
        )
    )


def _set_url(given: Overrides, url: object) -> None:
    # A url takes precedence over the environment.
    if not isinstance(url, str):
        raise ConfigurationError(
            f"the url must be a string such as postgresql://host/db or https://host:6632, not {type(url).__name__}"
        )
    if not url.strip():
        raise ConfigurationError(
            "the url is empty: give postgresql://user@host/db or https://host:6632, or leave it out to use "
            "PENSTOCK_URL or PENSTOCK_DATABASE_URL"
        )
    if url.strip().lower().startswith(("http://", "https://")):
        given["url"] = check_server_url("the url", url.strip())
        given["database_url"] = None
    else:
        given["url"] = None
        given["database_url"] = url
        given["database_source"] = "the url"


def _check_count(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"{name} must be a whole number, 1 or more, not {value!r}")
    return value


def _check_seconds(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
        raise ConfigurationError(f"retry_seconds must be a number of seconds, 0 or more, not {value!r}")
    return float(value)


def _check_key(value: object) -> str:
    # The message does not quote the key, because messages are printed and logged.
    if not isinstance(value, str) or not value.strip() or not value.isascii() or not value.isprintable():
        raise ConfigurationError("the api_key is not valid: give it as text, as `penstock key create` printed it")
    return value.strip()
