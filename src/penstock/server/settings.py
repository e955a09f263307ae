"""Settings of a server."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock.core.errors import ConfigurationError
from penstock.core.settings import Settings, parse_integer, parse_number, parse_switch

DEFAULT_PORT = 6632
REQUEST_LOGS = ("all", "errors", "none")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of ``penstock serve``. Each has an option and an environment variable ``PENSTOCK_<NAME>``.

    Attributes:
        core: The database and other settings that all commands share.
        host: The address to listen on. An address that is not loopback needs access control.
        port: The port to listen on.
        workers: Worker processes that share the port.
        request_seconds: How long a request may take to arrive. Uploads may take longer while they keep arriving.
        idle_seconds: How long a connection may stay open without a request.
        stop_seconds: How long requests in progress may take when the server stops.
        max_connections: Connections at a time, over all workers.
        live_streams: Live streams at a time, per process.
        cors_origins: Origins whose pages may call the server; none by default.
        allowed_hosts: Host names, beside those of loopback, that a server without access control answers for.
        trusted_proxies: Addresses whose ``X-Forwarded-For`` and ``X-Forwarded-Proto`` are trusted; none by default.
        request_log: Requests to log: all, errors (status 400 and above) or none.
        metrics_dir: Directory in which worker processes share their counters; None for a single process.
        tls_cert: Certificate with its chain, as PEM. With ``tls_key`` the server uses HTTPS.
        tls_key: Private key of the certificate, as PEM.
        require_access: Require keys on loopback too.
        jwt_jwks: File with the keys (JWKS) that verify bearer tokens.
        jwt_secret_file: File with a secret that verifies bearer tokens (HS256).
        jwt_audience: Audience (``aud``) that tokens must name.
        jwt_issuer: Issuer (``iss``) that tokens must have.
        failed_attempts: Failed authentications per address and minute before the address is throttled.
        audit_days: How long audit entries are kept.
        min_bytes_per_second: Average rate at which a body must arrive after ``request_seconds``.
        max_upload_bytes: Largest NDJSON body, decompressed. Other bodies are limited to 32 MiB.
        max_held_bytes: Memory of request bodies, and of responses, per process. Beyond it, requests are refused, and
            responses get smaller or wait.
        producer_events_per_second: Events per second that one producer may push, over all processes; None for no limit.
        queen_push_wait_seconds: How long a push of Queen's clients waits for room in a full queue before it is refused.
    """

    core: Settings = field(default_factory=Settings.from_env)
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    workers: int = 1
    request_seconds: float = 30.0
    idle_seconds: float = 75.0
    stop_seconds: float = 30.0
    max_connections: int = 10_000
    live_streams: int = 5_000
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    request_log: str = "all"
    metrics_dir: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    require_access: bool = False
    jwt_jwks: Path | None = None
    jwt_secret_file: Path | None = None
    jwt_audience: str | None = None
    jwt_issuer: str | None = None
    failed_attempts: int = 20
    audit_days: int = 90
    min_bytes_per_second: float = 4096.0
    max_upload_bytes: int = 2 << 30
    max_held_bytes: int = 128 << 20
    producer_events_per_second: float | None = None
    queen_push_wait_seconds: float = 10.0

    def __post_init__(self) -> None:
        for name, lowest, highest in _RANGES:
            if not lowest <= getattr(self, name) <= highest:
                raise ConfigurationError(
                    f"{variable(name)} is {getattr(self, name)}: it must be from {lowest} to {highest}"
                )
        if self.request_log not in REQUEST_LOGS:
            raise ConfigurationError(
                f"PENSTOCK_REQUEST_LOG is {self.request_log!r}: it must be one of {', '.join(REQUEST_LOGS)}"
            )
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigurationError("TLS needs both a certificate and its key: pass --tls-cert and --tls-key")
        for name in ("tls_cert", "tls_key", "jwt_jwks", "jwt_secret_file"):
            path: Path | None = getattr(self, name)
            if path is not None and not path.is_file():
                raise ConfigurationError(f"{variable(name)} is {str(path)!r}: there is no such file")
        for origin in self.cors_origins:
            _check_origin(origin)

    @classmethod
    def from_env(
        cls, core: Settings | None = None, environ: Mapping[str, str] = os.environ, **overrides: Any
    ) -> ServerSettings:
        """Read the settings from environment variables. Keyword arguments that are not None take precedence."""
        given = {name: value for name, value in overrides.items() if value is not None}
        values: dict[str, Any] = {"core": core if core is not None else Settings.from_env(environ)}
        for setting in fields(cls):
            text = environ.get(variable(setting.name), "").strip()
            if setting.name != "core" and setting.name not in given and text:
                values[setting.name] = _PARSERS[str(setting.type)](variable(setting.name), text)
        return cls(**values, **given)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            # A host name may resolve to another address later.
            return False

    @property
    def has_access_control(self) -> bool:
        """Whether callers need a credential."""
        return self.require_access or not self.is_loopback

    @property
    def scheme(self) -> str:
        return "https" if self.tls_cert is not None else "http"


def variable(name: str) -> str:
    return f"PENSTOCK_{name.upper()}"


_RANGES: tuple[tuple[str, float, float], ...] = (
    ("port", 0, 65_535),
    ("workers", 1, 64),
    ("request_seconds", 0.1, 3600),
    ("idle_seconds", 0.1, 3600),
    ("stop_seconds", 0, 3600),
    ("max_connections", 1, 1_000_000),
    ("live_streams", 0, 1_000_000),
    ("failed_attempts", 1, 1_000_000),
    ("audit_days", 1, 36_500),
    ("min_bytes_per_second", 1, 1e12),
    ("max_upload_bytes", 1, 1 << 50),
    ("max_held_bytes", 1 << 20, 1 << 50),
    ("queen_push_wait_seconds", 0, 3600),
)


#: Parsers of environment variables, by the type of the setting.
_PARSERS: dict[str, Callable[[str, str], Any]] = {
    "str": lambda _, text: text,
    "str | None": lambda _, text: text,
    "int": parse_integer,
    "float": parse_number,
    "float | None": parse_number,
    "bool": parse_switch,
    "Path | None": lambda _, text: Path(text).expanduser(),
    "tuple[str, ...]": lambda _, text: tuple(part.strip() for part in text.split(",") if part.strip()),
}


def _check_origin(origin: str) -> None:
    parts = urlsplit(origin)
    if parts.scheme not in ("http", "https") or not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}":
        raise ConfigurationError(
            f"{origin!r} is not an origin: write https://app.example.com or http://localhost:3000, without a path; "
            "* is not supported"
        )
