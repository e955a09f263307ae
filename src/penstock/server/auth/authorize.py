"""Authorization of requests by role and queue, and their audit entries."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import HTTPConnection

from penstock.server.auth.audit import AuditEntry
from penstock.server.auth.authenticate import Authenticator
from penstock.server.auth.identity import ANONYMOUS, UNRESTRICTED, Identity, Role
from penstock.server.http.errors import Problem

_ADMIN_ONLY = frozenset({Role.ADMIN})


class Authorizer:
    """Authorizes the callers of one endpoint.

    Args:
        method: The HTTP method of the endpoint.
        path: The path template of the endpoint.
        roles: Roles that may call it; empty if it needs no credential.
        checks_queues: Whether the handler checks the queues itself. Otherwise the queue is in the path, or the caller
            must not be limited to some queues.
        authenticator: None while access control is off.
    """

    def __init__(
        self,
        method: str,
        path: str,
        roles: frozenset[Role],
        *,
        checks_queues: bool,
        authenticator: Authenticator | None,
    ) -> None:
        self._roles = roles
        self._checks_queues = checks_queues
        self._authenticator = authenticator
        self._action = f"{method} {path}"
        self._is_audited = roles == _ADMIN_ONLY and method not in ("GET", "HEAD")

    async def authorize(self, connection: HTTPConnection, path: Mapping[str, str], request_id: str) -> Identity:
        """Authenticate the caller and check its role and the queue in the path; raise a problem if it is refused."""
        if self._authenticator is None:
            return UNRESTRICTED
        if not self._roles:
            return ANONYMOUS
        identity = await self._authenticator.authenticate(
            connection.scope["headers"], client_address(connection), self._action, request_id
        )
        connection.scope["state"]["caller"] = identity.id
        require_role(identity, self._roles)
        queue = path.get("queue")
        if queue is not None:
            require_queue(identity, queue)
        elif identity.is_limited and not self._checks_queues:
            raise Problem(
                "forbidden", "Insufficient permissions: this is not about one queue, and the key is limited to some"
            )
        return identity

    async def audit(self, connection: HTTPConnection, path: Mapping[str, str], status: int, request_id: str) -> None:
        """Write an audit entry for an administrator's action or a refused known caller."""
        if self._authenticator is None or not (self._is_audited or status == 403):
            return
        who, subject = connection.scope["state"].get("caller", ""), ", ".join(path.values())
        entry = AuditEntry(who, self._action, subject, client_address(connection), str(status), request_id)
        if not self._is_audited or status >= 400:
            self._authenticator.audit.record_failure(entry)
        else:
            await self._authenticator.audit.write_or_log(entry)


def require_role(identity: Identity, roles: frozenset[Role]) -> None:
    if not identity.has_role(roles):
        names = " or ".join(sorted(role.value for role in roles))
        raise Problem("forbidden", f"Insufficient permissions: this needs the role {names}")


def require_queue(identity: Identity, queue: str) -> None:
    if not identity.can_access(queue):
        detail = f"Insufficient permissions: the key is not for the queue {queue!r}"
        raise Problem("forbidden", detail, {"queue": queue})


def client_address(connection: HTTPConnection) -> str:
    return connection.client.host if connection.client is not None else ""
