"""How the console is to run."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.errors import ConfigurationError
from penstock.core.settings import Settings
from penstock.server.settings import ServerSettings

DEFAULT_PORT = 6633
_SHORTEST_SECRET = 32
#: Browsers keep a WebSocket open for as long as they look; nothing is lost by closing it.
_STOP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """What ``penstock console`` is told.

    Attributes:
        server: Where it listens, over what, and who is let in: the rules are those of ``penstock serve``.
        secret: What signs the cookies of those who are signed in. Made anew at each start unless it is given, so that
            a restart signs everybody out.
    """

    server: ServerSettings
    secret: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) < _SHORTEST_SECRET:
            raise ConfigurationError(
                f"PENSTOCK_CONSOLE_SECRET is too short: give it {_SHORTEST_SECRET} characters or more, for example "
                "from `openssl rand -hex 32`, or leave it out"
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
        """Read the settings from ``environ``; what is given and is not None wins.

        The console has an address of its own; the rest it shares with the server.
        """
        said = {name: value.strip() for name, value in environ.items() if value.strip()}
        server = ServerSettings.from_env(
            core,
            environ,
            host=host or said.get("PENSTOCK_CONSOLE_HOST", "127.0.0.1"),
            port=port if port is not None else _port(said.get("PENSTOCK_CONSOLE_PORT")),
            require_access=require_access,
            workers=1,
            stop_seconds=_STOP_SECONDS,
            request_log=said.get("PENSTOCK_REQUEST_LOG", "errors"),
        )
        secret = said.get("PENSTOCK_CONSOLE_SECRET")
        return cls(server) if secret is None else cls(server, secret)


def _port(text: str | None) -> int:
    if text is None:
        return DEFAULT_PORT
    try:
        return int(text)
    except ValueError:
        raise ConfigurationError(f"PENSTOCK_CONSOLE_PORT is {text!r}: set it to a whole number, in digits") from None
