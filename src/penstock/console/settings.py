"""Settings of the console."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.errors import ConfigurationError
from penstock.core.settings import Settings, parse_integer
from penstock.server.settings import ServerSettings

DEFAULT_PORT = 6633
_MIN_SECRET_CHARACTERS = 32
#: Open pages keep a WebSocket open. Closing it loses nothing.
_STOP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """Settings of ``penstock console``.

    Attributes:
        server: The address, TLS and access control, with the same rules as ``penstock serve``.
        secret: Signs the session cookies. The default is random, so that a restart signs all users out.
    """

    server: ServerSettings
    secret: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) < _MIN_SECRET_CHARACTERS:
            raise ConfigurationError(
                f"PENSTOCK_CONSOLE_SECRET is too short: set it to {_MIN_SECRET_CHARACTERS} characters or more, for "
                "example from `openssl rand -hex 32`, or unset it"
            )

    @classmethod
    def from_env(
        cls,
        core: Settings | None = None,
        environ: Mapping[str, str] = os.environ,
        *,
        host: str | None = None,
        port: int | None = None,
        require_access: bool | None = None,
    ) -> ConsoleSettings:
        """Read the settings from ``environ``. Arguments that are not None take precedence.

        The console has its own address. It shares the other settings with the server.
        """
        port_variable = "PENSTOCK_CONSOLE_PORT"
        variables = {name: value.strip() for name, value in environ.items() if value.strip()}
        server = ServerSettings.from_env(
            core,
            environ,
            host=host or variables.get("PENSTOCK_CONSOLE_HOST", "127.0.0.1"),
            port=parse_integer(port_variable, variables.get(port_variable, str(DEFAULT_PORT)))
            if port is None
            else port,
            require_access=require_access,
            workers=1,
            stop_seconds=_STOP_SECONDS,
            request_log=variables.get("PENSTOCK_REQUEST_LOG", "errors"),
        )
        secret = variables.get("PENSTOCK_CONSOLE_SECRET")
        return cls(server) if secret is None else cls(server, secret)
