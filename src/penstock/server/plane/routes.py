"""Every route of the message plane."""

from __future__ import annotations

from penstock.server.endpoint import Endpoint
from penstock.server.plane import ack, dead_letters, groups, pop, push, queues

ENDPOINTS: tuple[Endpoint, ...] = (
    *push.ENDPOINTS,
    *pop.ENDPOINTS,
    *ack.ENDPOINTS,
    *queues.ENDPOINTS,
    *dead_letters.ENDPOINTS,
    *groups.ENDPOINTS,
)
