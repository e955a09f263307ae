"""Every route of the protocol of Queen's clients."""

from __future__ import annotations

from penstock.server.queen.admin import (
    configure,
    dead_letters,
    groups,
    messages,
    queen_health,
    resources,
    seek,
    status,
    traces,
)
from penstock.server.queen.coordination import kv, locks, timers
from penstock.server.queen.delivery import ack, offset_reads, pop, push, transaction
from penstock.server.queen.errors import QUEEN_ERRORS
from penstock.server.queen.streams import cycle, register, stream_state
from penstock.server.routing.endpoint import Endpoint

ERRORS = QUEEN_ERRORS
#: The prefixes of all paths but /health.
PATHS = ("/api/v1", "/streams/v1")

#: In the order of how often they are called. A fixed path precedes a pattern that matches it too.
ENDPOINTS: tuple[Endpoint, ...] = (
    *push.routes,
    *pop.routes,
    *ack.routes,
    *transaction.routes,
    *cycle.routes,
    *stream_state.routes,
    *kv.routes,
    *locks.routes,
    *timers.routes,
    *offset_reads.routes,
    *register.routes,
    *configure.routes,
    *dead_letters.routes,
    *groups.routes,
    *seek.routes,
    *messages.routes,
    *traces.routes,
    *resources.routes,
    *status.routes,
    *queen_health.routes,
)
