"""What a sink is: the small class that everything which takes events out of queues is an instance of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from penstock.core.errors import SinkBusy as SinkBusy
from penstock.core.errors import SinkRejected as SinkRejected

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.event import Event
    from penstock.log.log import Batch

#: Whether an event can be written twice when a process dies at the wrong moment.
Guarantee = Literal["at_least_once", "exactly_once"]


class Sink:
    """Somewhere for events to go. Subclass it and write ``write``; the rest has defaults.

    ::

        class Shout(Sink):
            name = "shout"

            async def write(self, events):
                for event in events:
                    print(event.data["text"].upper())

    Who calls what: a runner calls ``open`` once, then ``write`` again and again, then ``close`` once, whatever
    happened. ``write`` is given events of one queue, one or more, those of a partition in their order, and is never
    called twice at the same time. When it returns, the events are the sink's: the runner acknowledges them, and calls
    ``acknowledged`` when that is done. If it raises, none of them count as written, and they come again in the same
    order, perhaps in smaller batches:

    * ``SinkBusy(retry_after=...)``: not now. The same batch comes again then, as often as it takes; none before.
    * ``SinkRejected(events={0, 3})``: these can never be written. They become dead letters, and the others come again
      without them. Without ``events``, the runner finds out which they are by trying them one by one.
    * ``SinkClosed``: never again. The runner ends this sink, and puts the events back.
    * anything else: it is tried again after a pause that grows. What fails alone ``attempts`` times becomes a dead
      letter, with the traceback.

    An event can come twice if the process dies between ``write`` and the acknowledgement. A sink that can tell (the
    event's partition, offset and ``appended_at`` never change, and no other event has them) says ``guarantee =
    "exactly_once"``.
    """

    #: What it is called; the group that it reads as, unless that is told otherwise.
    name: str = "sink"
    guarantee: Guarantee = "at_least_once"
    #: How many events a batch has at the most, unless the runner is told otherwise.
    batch: ClassVar[int] = 500

    @property
    def is_resting(self) -> bool:
        """Whether it leaves the other side alone for a while, because that has failed too often."""
        return False

    async def open(self) -> None:
        """Get ready. What it raises is tried again, unless the sink is set up in a wrong way (InvalidRequest).

        With Conflict, another process writes where it is to write: it stands by until that one has ended.
        """

    async def write(self, events: Sequence[Event]) -> None:
        """Take these events, all or none."""
        raise NotImplementedError

    async def acknowledged(self, events: Sequence[Event]) -> None:
        """Hear that these events will not come again."""

    async def close(self) -> None:
        """Let go of everything."""


class TransactionalSink(Sink):
    """A sink in the queues' own database: what it writes and the acknowledgement are one transaction.

    ``write_in`` is called instead of ``write``, on a connection in whose transaction the events are acknowledged
    already. It answers what is to be pushed in the same transaction. If it raises, none of it happened.
    """

    guarantee: Guarantee = "exactly_once"
    #: Be called without events too, every so many seconds, for what time alone brings about.
    tick_seconds: float | None = None

    async def write_in(self, connection: AsyncConnection[Any], events: Sequence[Event]) -> Sequence[Batch]:
        """Take these events, all or none, and answer what is to be pushed with them."""
        raise NotImplementedError
