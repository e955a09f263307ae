"""How a server process is to run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from penstock.core.settings import Settings

DEFAULT_PORT = 6632


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What ``penstock serve`` is told, by option or by variable.

    Attributes:
        core: The database and the like.
        host: The address to listen on; one that is not loopback needs access control.
        request_seconds: How long a request may take to arrive; uploads that keep arriving may take longer.
        cors_origins: The origins whose pages may call; none by default.
        metrics_dir: Where worker processes that serve together keep their counts; None, if there is only one.
        request_log: Which requests have a line in the log: all, errors (those of status 400 and above) or none.
    """

    core: Settings = field(default_factory=Settings.from_env)
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    workers: int = 1
    request_seconds: float = 30.0
    cors_origins: tuple[str, ...] = ()
    request_log: str = "all"
    metrics_dir: Path | None = None
