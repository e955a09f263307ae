"""What a server process has at hand while it runs: one of each, made when it starts and closed when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from penstock.log.log import Log
from penstock.log.read.pop import FIRST_BYTES
from penstock.server.auth.authenticate import Guard
from penstock.server.http.endpoint import Endpoint
from penstock.server.http.openapi import rendered
from penstock.server.http.search_limits import Looks
from penstock.server.ingest.memory_budget import Budget
from penstock.server.ingest.rate_limit import Producers
from penstock.server.live.registry import Hubs
from penstock.server.metrics.counters import Instruments
from penstock.server.metrics.database import Standing
from penstock.server.settings import ServerSettings


@dataclass
class Services:
    """Handed to every handler."""

    settings: ServerSettings
    log: Log
    #: Knows callers by their keys; None where access is off.
    guard: Guard | None = None
    #: Set when the process is asked to end: long polls and live streams answer what they have and let go.
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    #: What this process counts, and what the database knows.
    metrics: Instruments = field(default_factory=Instruments)
    #: Every route, as it is documented.
    endpoints: Sequence[Endpoint] = ()
    #: What bounds what is taken in: all of it together, and that of each producer.
    budget: Budget = field(init=False)
    #: The same for the events that are given out, until they are sent.
    given_out: Budget = field(init=False)
    producers: Producers = field(init=False)

    def __post_init__(self) -> None:
        self.budget = Budget(self.settings.max_held_bytes)
        self.given_out = Budget(self.settings.max_held_bytes, "answers", FIRST_BYTES)
        rate = self.settings.producer_events_per_second
        # Each process knows of its own requests only.
        self.producers = Producers(None if rate is None else rate / max(1, self.settings.workers))
        self.looks = Looks(self.settings.core.pool_size)
        self.standing = Standing(self.log.database)
        self.hubs = Hubs(self.log, self.metrics, self.stopping, self.settings.live_streams)

    @cached_property
    def openapi(self) -> bytes:
        """The OpenAPI document."""
        return rendered(self.endpoints)
