"""How a server process is to run."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock.core.errors import ConfigurationError
from penstock.core.settings import Settings

DEFAULT_PORT = 6632
REQUEST_LOGS = ("all", "errors", "none")

_ON = ("1", "true", "yes", "on")
_OFF = ("0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What ``penstock serve`` is told, by option or by variable: ``PENSTOCK_`` and the name in capitals.

    Attributes:
        core: The database and the like.
        host: The address to listen on; one that is not loopback needs access control.
        workers: How many processes share the port.
        request_seconds: How long a request may take to arrive; uploads that keep arriving may take longer.
        idle_seconds: How long a connection may stay open without a request.
        stop_seconds: How long the requests that are being answered may take when the server is to stop.
        max_connections: Most connections at a time, over all workers.
        live_streams: Most live streams at a time in one process.
        cors_origins: The origins whose pages may call; none by default.
        metrics_dir: Where worker processes that serve together keep their counts; None, if there is only one.
        allowed_hosts: Names that the server answers for where no key protects it, beside those of loopback.
        trusted_proxies: Addresses whose ``X-Forwarded-For`` and ``-Proto`` are believed; none by default.
        request_log: Which requests have a line in the log: all, errors (those of status 400 and above) or none.
        tls_cert: A certificate with its chain, as PEM; with ``tls_key`` the server speaks HTTPS.
        require_access: Ask for keys on loopback too.
        jwt_jwks: A file of keys (JWKS) with which bearer tokens may be signed.
        jwt_secret_file: A file that holds a secret with which they may be signed (HS256).
        jwt_audience: What a token's ``aud`` must name.
        jwt_issuer: What a token's ``iss`` must be.
        failed_attempts: So many wrong keys from one address in a minute; then it has to wait.
        audit_days: How long the audit log is kept.
        min_bytes_per_second: How fast a body must come after that, on the whole; who is slower is cut off.
        max_upload_bytes: How large a body of lines may be, undone; other bodies may have 32 MiB.
        max_held_bytes: How much of all bodies together a process holds in memory before it refuses more, and how much
            of what it gives out before the next who ask get less, or have to wait.
        producer_events_per_second: How fast one producer may push, over all processes; None: as fast as it can.
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

    def __post_init__(self) -> None:
        for name, lowest, highest in _RANGES:
            if not lowest <= getattr(self, name) <= highest:
                raise ConfigurationError(
                    f"{variable(name)} is {getattr(self, name)}: set it from {lowest} to {highest}"
                )
        if self.request_log not in REQUEST_LOGS:
            raise ConfigurationError(
                f"PENSTOCK_REQUEST_LOG is {self.request_log!r}: set it to one of {', '.join(REQUEST_LOGS)}"
            )
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigurationError("TLS needs both a certificate and its key: give --tls-cert and --tls-key")
        for name in ("tls_cert", "tls_key", "jwt_jwks", "jwt_secret_file"):
            path: Path | None = getattr(self, name)
            if path is not None and not path.is_file():
                raise ConfigurationError(f"{variable(name)} names {str(path)!r}, and there is no such file")
        for origin in self.cors_origins:
            _check_origin(origin)

    @classmethod
    def from_env(
        cls, core: Settings | None = None, environ: Mapping[str, str] = os.environ, **overrides: Any
    ) -> ServerSettings:
        """Read the settings from ``environ``; what is given by keyword and is not None wins."""
        given = {name: value for name, value in overrides.items() if value is not None}
        found: dict[str, Any] = {"core": core if core is not None else Settings.from_env(environ)}
        for each in fields(cls):
            text = environ.get(variable(each.name), "").strip()
            if each.name != "core" and each.name not in given and text:
                found[each.name] = _READERS[str(each.type)](variable(each.name), text)
        return cls(**found, **given)

    @property
    def is_loopback(self) -> bool:
        """Whether nobody outside this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            # A name: whatever it stands for now may be something else tomorrow.
            return False

    @property
    def is_guarded(self) -> bool:
        """Whether callers have to say who they are."""
        return self.require_access or not self.is_loopback

    @property
    def scheme(self) -> str:
        """How the server's address begins."""
        return "https" if self.tls_cert is not None else "http"


def variable(name: str) -> str:
    """The variable of a setting."""
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
)


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigurationError(f"{name} is {text!r}: set it to a whole number, in digits") from None


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f"{name} is {text!r}: set it to a number of seconds") from None


def _switch(name: str, text: str) -> bool:
    if text.lower() not in (*_ON, *_OFF):
        raise ConfigurationError(f"{name} is {text!r}: set it to 1 (on) or 0 (off)")
    return text.lower() in _ON


#: How a variable becomes a setting, by the setting's type.
_READERS: dict[str, Callable[[str, str], Any]] = {
    "str": lambda _, text: text,
    "str | None": lambda _, text: text,
    "int": _whole,
    "float": _number,
    "float | None": _number,
    "bool": _switch,
    "Path | None": lambda _, text: Path(text).expanduser(),
    "tuple[str, ...]": lambda _, text: tuple(part.strip() for part in text.split(",") if part.strip()),
}


def _check_origin(origin: str) -> None:
    parts = urlsplit(origin)
    if parts.scheme not in ("http", "https") or not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}":
        raise ConfigurationError(
            f"{origin!r} is no origin: write it as https://app.example.com or http://localhost:3000, without a path; "
            "* is not taken, name the pages that may call"
        )
