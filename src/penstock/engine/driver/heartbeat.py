"""Renews the lease of a query while its driver makes progress."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from py4j.protocol import Py4JError

from penstock.core.errors import LeaseLost
from penstock.engine.cycle.models import QueryContext

_logger = logging.getLogger("penstock.engine")


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
