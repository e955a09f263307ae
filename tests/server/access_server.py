"""A server with access control, and credentials for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from penstock.server.auth.identity import Role
from tests.server.keys import create_key
from tests.server.server_process import RunningServer, run_server

#: The secret that signs tokens.
JWT_SECRET = "a secret that is long enough to sign tokens with"  # noqa: S105
#: A limit on failed attempts that no test reaches.
_UNLIMITED = "1000000"


@dataclass
class AccessServer:
    """A running server with access control, its database and its log."""

    running: RunningServer
    database_url: str
    log: Path

    @property
    def url(self) -> str:
        return self.running.url

    def get(self, path: str, **headers: str) -> httpx.Response:
        return httpx.get(self.url + path, headers=headers, timeout=30)

    def create_key(self, *roles: Role, queues: Sequence[str] = ("*",)) -> str:
        return create_key(self.database_url, *roles, queues=queues)


@contextmanager
def run_access_server(database_url: str, folder: Path, request_log: str = "all") -> Iterator[AccessServer]:
    (folder / "secret").write_text(JWT_SECRET)
    options = ["--require-access", "--jwt-secret-file", str(folder / "secret")]
    environ = {"PENSTOCK_FAILED_ATTEMPTS": _UNLIMITED, "PENSTOCK_REQUEST_LOG": request_log}
    with (folder / "log").open("w") as log, run_server(database_url, options, environ, log) as running:
        yield AccessServer(running, database_url, folder / "log")
