"""Every route of the message plane."""

from __future__ import annotations

from penstock.server.http.endpoint import Endpoint
from penstock.server.queen import (
    ack,
    dead_letters,
    groups,
    health,
    messages,
    pop,
    push,
    queues,
    resources,
    streams,
    traces,
    transaction,
)

ENDPOINTS: tuple[Endpoint, ...] = (
    *push.ENDPOINTS,
    *pop.ENDPOINTS,
    *ack.ENDPOINTS,
    *transaction.ENDPOINTS,
    *streams.ENDPOINTS,
    *queues.ENDPOINTS,
    *dead_letters.ENDPOINTS,
    *groups.ENDPOINTS,
    *messages.ENDPOINTS,
    *traces.ENDPOINTS,
    *resources.ENDPOINTS,
    *health.ENDPOINTS,
)
