"""The objects that all requests of a server process share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.log.log import Log
from penstock.log.read.pop import MIN_POP_BYTES
from penstock.server.auth.authenticate import Authenticator
from penstock.server.http.memory_budget import MemoryBudget
from penstock.server.http.producer_rate_limit import ProducerRateLimiter
from penstock.server.http.search_limits import SearchLimiter
from penstock.server.live.broadcaster_registry import BroadcasterRegistry
from penstock.server.metrics.counters import ServerMetrics
from penstock.server.metrics.database_metrics import DatabaseMetrics
from penstock.server.settings import ServerSettings

_ComponentT = TypeVar("_ComponentT")


@dataclass
class Services:
    """Shared objects of a server process, created at its start."""

    settings: ServerSettings
    log: Log
    #: None while access control is off.
    authenticator: Authenticator | None
    metrics: ServerMetrics
    #: Returns the OpenAPI document of the server.
    openapi: Callable[[], bytes]
    #: Set when the process stops: long polls and live streams then return.
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        settings = self.settings
        #: Memory of request bodies, and of responses until they are sent.
        self.request_memory = MemoryBudget(settings.max_held_bytes)
        self.response_memory = MemoryBudget(settings.max_held_bytes, "responses", MIN_POP_BYTES)
        rate = settings.producer_events_per_second
        # Each worker process counts its own requests only.
        self.producer_rates = ProducerRateLimiter(None if rate is None else rate / max(1, settings.workers))
        self.searches = SearchLimiter(settings.core.pool_size)
        self.database_metrics = DatabaseMetrics(self.log.database)
        self.broadcasters = BroadcasterRegistry(self.log, self.metrics, self.stopping, settings.live_streams)
        self._components: dict[Callable[[Log], Any], Any] = {}

    def component(self, build: Callable[[Log], _ComponentT]) -> _ComponentT:
        """Return an object that a group of routes shares in this process; ``build`` makes it on the first call."""
        component: _ComponentT | None = self._components.get(build)
        if component is None:
            component = self._components[build] = build(self.log)
        return component
