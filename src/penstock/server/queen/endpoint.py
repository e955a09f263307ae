"""The endpoints of the protocol: their tag, error format and lenient query strings."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from penstock.server.auth.identity import Role
from penstock.server.queen.errors import QUEEN_ERRORS
from penstock.server.routing.endpoint import Endpoint, Handler

TAG = "Queen protocol"


def queen_endpoint(
    method: str, path: str, handler: Handler, summary: str, roles: Collection[Role] = (), **options: Any
) -> Endpoint:
    """Build an endpoint of the protocol; ``options`` are further fields of :class:`Endpoint`."""
    return Endpoint(
        method,
        path,
        handler,
        summary,
        TAG,
        roles=frozenset(roles),
        errors=QUEEN_ERRORS,
        lenient_query=True,
        **options,
    )
