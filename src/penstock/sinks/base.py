"""``Sink`` and ``TransactionalSink``, the base classes of all sinks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.event import Event
    from penstock.log.write.encode.batch import Batch

#: Whether an event can be written twice if the process dies between write and acknowledgement.
Guarantee = Literal["at_least_once", "exactly_once"]


class Sink:
    """A destination of events. Subclass it and implement ``write``; the other methods have defaults.

    ::

        class Shout(Sink):
            name = "shout"

            async def write(self, events):
                for event in events:
                    print(event.data["text"].upper())

    The runner calls ``open`` once, then ``write`` for each batch, then ``close`` once, also after errors. ``write``
    gets one or more events of one queue, in order within each partition. It is never called concurrently, unless the
    sink sets ``is_concurrent`` and the option ``concurrency``; then each call has events of one partition. When it
    returns, the runner acknowledges the events and calls ``acknowledged``. When it raises, none of the events counts as
    written. They come again in the same order, possibly in smaller batches:

    * ``SinkBusy(retry_after=...)``: the sink is unavailable. The runner repeats the same batch after that time, without
      limit, and writes no other batch before.
    * ``SinkRejected(events={0, 3})``: these events can never be written. They become dead letters, and the others come
      again without them. Without ``events`` the runner finds them by writing smaller batches.
    * ``SinkClosed``: the sink has ended. The runner stops it and releases the events.
    * Any other exception: the runner retries with a backoff. An event that fails alone ``attempts`` times becomes a
      dead letter with the traceback.

    An event can come twice if the process dies between ``write`` and the acknowledgement. A sink that recognizes such
    events sets ``guarantee = "exactly_once"``: the partition, the offset and ``appended_at`` of an event identify it
    and never change.
    """

    #: The name of the sink, and by default of its consumer group.
    name: str = "sink"
    guarantee: Guarantee = "at_least_once"
    #: The most events of a batch, unless the option ``batch`` is set.
    batch: int = 500
    #: The most calls of ``write`` at the same time, unless the option ``concurrency`` is set.
    concurrency: int = 1
    #: Whether ``write`` may be called concurrently, with events of different partitions.
    is_concurrent: ClassVar[bool] = False
    #: Whether the limits of a gate hold for this sink: events of a gated stream's queue are written no faster than the
    #: gate allows, also after an outage. Sinks in the database or in files do not need it.
    keeps_limits: ClassVar[bool] = True

    @property
    def is_resting(self) -> bool:
        """Whether the sink sends nothing for a while because its target has failed repeatedly."""
        return False

    def check_fields(self, fields: Collection[str]) -> None:
        """Called before a query starts whose results have these fields; raises InvalidRequest if others are needed."""

    async def open(self) -> None:
        """Prepare for writes.

        InvalidRequest, ConfigurationError and NotFound end the sink. Conflict means that another process uses the
        target: the sink waits until that process ends. After other exceptions the runner calls ``open`` again.
        """

    async def write(self, events: Sequence[Event]) -> None:
        """Write these events, all or none."""
        raise NotImplementedError

    async def acknowledged(self, events: Sequence[Event]) -> None:
        """Called after the acknowledgement: these events do not come again."""

    async def close(self) -> None:
        """Release all resources."""


class TransactionalSink(Sink):
    """A sink in the database of the queues: the write and the acknowledgement are one transaction.

    The runner calls ``write_in`` instead of ``write``, in a transaction that has acknowledged the events. The method
    returns batches to push in the same transaction. If it raises, the transaction is rolled back.
    """

    guarantee: Guarantee = "exactly_once"
    keeps_limits = False
    #: The interval at which ``write_in`` is called without events too; None for never.
    tick_seconds: float | None = None

    async def write_in(self, connection: AsyncConnection[Any], events: Sequence[Event]) -> Sequence[Batch]:
        """Write these events, all or none; return batches to push in the same transaction."""
        raise NotImplementedError
