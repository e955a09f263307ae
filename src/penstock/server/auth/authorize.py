"""Who is let in to an endpoint, and what is written down about it. The one place where that is decided."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import HTTPConnection

from penstock.server.auth.audit import Entry
from penstock.server.auth.identity import ANYBODY, NOBODY, Identity
from penstock.server.http.endpoint import Endpoint, Role
from penstock.server.http.errors import Problem
from penstock.server.services import Services

_ADMIN_ONLY = frozenset({Role.ADMIN})


class Gate:
    """Stands before one endpoint."""

    def __init__(self, endpoint: Endpoint, services: Services) -> None:
        self._endpoint = endpoint
        self._services = services
        self._action = f"{endpoint.method} {endpoint.path}"
        self._is_audited = endpoint.roles == _ADMIN_ONLY and endpoint.method not in ("GET", "HEAD")

    async def admit(self, connection: HTTPConnection, path: Mapping[str, str], request_id: str) -> Identity:
        """Who asks, if he may, as far as the path says."""
        guard = self._services.guard
        if guard is None:
            return ANYBODY
        if not self._endpoint.roles:
            return NOBODY
        address = address_of(connection)
        identity = await guard.identify(connection.scope["headers"], address, self._action, request_id)
        connection.scope["state"]["caller"] = identity.id
        self._permit(identity, path)
        return identity

    def _permit(self, identity: Identity, path: Mapping[str, str]) -> None:
        endpoint = self._endpoint
        if not identity.has(endpoint.roles):
            needed = " or ".join(sorted(role.value for role in endpoint.roles))
            raise Problem("forbidden", f"Insufficient permissions: this needs the role {needed}")
        queue = path.get("queue")
        if queue is not None:
            if not identity.reaches(queue):
                raise Problem(
                    "forbidden", f"Insufficient permissions: the key is not for the queue {queue!r}", {"queue": queue}
                )
        elif identity.is_limited and not endpoint.asks:
            detail = "Insufficient permissions: this is not about one queue, and the key is limited to some"
            raise Problem("forbidden", detail)

    async def note(self, connection: HTTPConnection, path: Mapping[str, str], status: int, request_id: str) -> None:
        """Write down what an administrator did and what a known caller was refused, where access is on."""
        guard = self._services.guard
        if guard is None or not (self._is_audited or status == 403):
            return
        who, subject = connection.scope["state"].get("caller", ""), ", ".join(path.values())
        entry = Entry(who, self._action, subject, address_of(connection), str(status), request_id)
        if not self._is_audited or status >= 400:
            guard.audit.note_failure(entry)
        else:
            await guard.audit.write_done(entry)


def address_of(connection: HTTPConnection) -> str:
    """Where a request comes from."""
    return connection.client.host if connection.client is not None else ""
