"""Calls the handler of a consumer with the events of one pop, and acknowledges them.

A handler of lists that fails is called again with each event alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

from penstock.client.arguments import read_error
from penstock.log.event import Event
from penstock.log.read.consume_loop import EventSource, group_by_partition, release_events
from penstock.log.read.lease_keeper import LeaseKeeper

_logger = logging.getLogger("penstock.client")

_Call = Callable[[object], Awaitable[None]]


class BatchDelivery:
    """The events of one pop on their way through a handler.

    An event whose handler raises is failed. If its retries are used up, it becomes a dead letter and the delivery goes
    on with the next event. Otherwise the event is delivered again later, and so are those after it in its partition,
    to keep their order: they are released unhandled. Other partitions go on.

    Completed events are acknowledged every ``report_seconds``, so that few are repeated after a crash.
    """

    def __init__(
        self,
        source: EventSource,
        events: Sequence[Event],
        *,
        lease_seconds: float | None,
        is_stopping: Callable[[], bool],
        report_seconds: float = 1.0,
    ) -> None:
        self.completed = 0
        self.failed = 0
        #: An exception of the handler that ends the consumer, such as SystemExit.
        self.fatal: BaseException | None = None
        self._source = source
        self._events = events
        self._lease = LeaseKeeper(source, events, lease_seconds)
        self._is_stopping = is_stopping
        self._report_seconds = report_seconds

    def keep_leases(self, *, enabled: bool) -> AbstractAsyncContextManager[object]:
        """Extend the leases of the events while the block runs, if that is enabled."""
        return self._lease if enabled else nullcontext()

    async def deliver_list(self, call: _Call) -> None:
        """Call the handler once with all events.

        If that fails, call it again with a list of each event alone. So a bad event does not use up the retries of
        the others.
        """
        events = self._events
        if self._is_over():
            await release_events(self._source, events)
            return
        try:
            error = await self._try(call, list(events))
        except asyncio.CancelledError:
            await release_events(self._source, events)
            raise
        if error is None:
            await self._complete(events)
        elif len(events) == 1 and self.fatal is None:
            await self._fail(events[0], error)
        else:
            await self.deliver_one_by_one(lambda event: call([event]))

    async def deliver_one_by_one(self, call: _Call) -> None:
        """Call the handler with each event, in order, one partition after the other."""
        waiting = group_by_partition(self._events)
        try:
            while waiting:
                await self._deliver_partition(waiting.pop(0), call)
        except asyncio.CancelledError:
            await release_events(self._source, [event for partition in waiting for event in partition])
            raise

    async def _deliver_partition(self, events: Sequence[Event], call: _Call) -> None:
        clock = asyncio.get_running_loop().time
        report_at = clock() + self._report_seconds
        done = reported = 0
        try:
            while done < len(events) and not self._is_over():
                error = await self._try(call, events[done])
                if self.fatal is not None:
                    break
                if error is not None:
                    await self._complete(events[reported:done])
                    if not await self._fail(events[done], error):
                        return
                    reported = done + 1
                done += 1
                if clock() >= report_at:
                    await self._complete(events[reported:done])
                    reported, report_at = done, clock() + self._report_seconds
        except asyncio.CancelledError:
            await self._complete(events[reported:done])
            await release_events(self._source, events[done:])
            raise
        await self._complete(events[reported:done])
        await release_events(self._source, events[done:])

    async def _try(self, call: _Call, argument: object) -> BaseException | None:
        """Call the handler and return its exception; raise only if this task is cancelled."""
        try:
            await call(argument)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return error
        except Exception as error:
            return error
        except BaseException as error:
            self.fatal = error
            return error
        return None

    async def _complete(self, events: Sequence[Event]) -> None:
        partitions = group_by_partition(events)
        if not partitions:
            return
        # Completing the last event of a partition completes those before it.
        results = await self._source.ack([partition[-1] for partition in partitions])
        for partition, result in zip(partitions, results, strict=True):
            if result:
                self.completed += len(partition)
            else:
                self._lease.is_lost = True
                _logger.warning(
                    "queue %r, partition %r: %d events were handled and could not be completed: %s",
                    partition[0].queue,
                    partition[0].partition,
                    len(partition),
                    result.error,
                )

    async def _fail(self, event: Event, error: BaseException) -> bool:
        """Acknowledge a failure; return whether the event is a dead letter, so that the next event can follow."""
        text, trace = read_error(_trim_traceback(error))
        (result,) = await self._source.ack([event], "failed", error=text, traceback=trace)
        self.failed += 1
        outcome = result.error or ("it is a dead letter now" if result.dead_letter else "it is delivered again later")
        _logger.warning(
            "queue %r, partition %r: the handler failed on event %s: %s (%s)",
            event.queue,
            event.partition,
            event.id,
            text,
            outcome,
        )
        return result.dead_letter

    def _is_over(self) -> bool:
        return self._is_stopping() or self._lease.is_lost or self.fatal is not None


def _trim_traceback(error: BaseException) -> BaseException:
    """Remove the frames of the client, so that the traceback begins in the handler."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("penstock.client"):
        trace = trace.tb_next
    return error if trace is None else error.with_traceback(trace)
