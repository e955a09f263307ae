"""Groups of endpoints of the protocol: their tag, error format and lenient query strings."""

from __future__ import annotations

from penstock.server.queen.errors import QUEEN_ERRORS
from penstock.server.routing.endpoint import EndpointGroup


def queen_routes(*problems: str) -> EndpointGroup:
    return EndpointGroup("Queen protocol", problems=problems, errors=QUEEN_ERRORS, lenient_query=True)
