"""Renews the lease of a query while its driver makes progress, and decides when a cycle counts as hung."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from py4j.protocol import Py4JError

from penstock.core.errors import LeaseLost
from penstock.engine.cycle.cycle_result import QueryContext

_logger = logging.getLogger("penstock.engine")

#: A cycle that takes longer counts as hung, and the lease is no longer renewed.
MAX_CYCLE_SECONDS = 1800.0


class DriverProgress:
    """The activity of a driver and its start. The first one is preparing, which may take any time."""

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._cycle_began: float | None = None
        self._last_planning: float | None = None

    def note_planning(self) -> None:
        self._last_planning = time.monotonic()

    def begin_cycle(self) -> None:
        self._cycle_began = time.monotonic()

    def end_cycle(self) -> None:
        self._cycle_began = None

    def is_alive(self, *, is_ending: bool) -> bool:
        """Return whether the driver prepares, ends, computes a cycle that is not hung, or planned a moment ago."""
        now = time.monotonic()
        if self._cycle_began is not None:
            return now - self._cycle_began < MAX_CYCLE_SECONDS
        return is_ending or self._last_planning is None or now - self._last_planning < self._lease_seconds


class LeaseHeartbeat:
    """A thread that renews the lease every quarter of its length.

    It skips a renewal while ``is_alive`` says that the driver hangs, or while the JVM does not answer. The lease then
    expires, and a standby takes the query over.
    """

    def __init__(
        self,
        context: QueryContext,
        fence: int,
        is_alive: Callable[[], bool],
        on_lost: Callable[[BaseException], None],
    ) -> None:
        self._context = context
        self._fence = fence
        self._is_alive = is_alive
        self._on_lost = on_lost
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._main, name=f"penstock lease {context.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. It is not joined for long: the JVM that it waits for may never answer."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _main(self) -> None:
        context, lease = self._context, self._context.options.lease_seconds
        while not self._stopped.wait(lease / 4):
            if not self._is_alive():
                continue
            try:
                # Blocks while the JVM is suspended.
                context.spark.sparkContext._jsc.sc().isStopped()
                if not context.run(context.registry.renew_lease(context.id, self._fence, lease)):
                    self._on_lost(LeaseLost(f"query {context.name!r} was taken over by another driver"))
                    return
            except (Py4JError, ConnectionError) as error:
                self._on_lost(error)  # the JVM has ended
                return
            except Exception:
                _logger.debug("the lease could not be renewed", exc_info=True)
