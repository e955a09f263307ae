"""The events that a consumer has in hand: what was done with them, and what the log is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from penstock.client.arguments import read_error

if TYPE_CHECKING:
    from penstock.client.transport import Transport
    from penstock.log.event import Event

_logger = logging.getLogger("penstock.client")

#: What is done is reported at the latest after this many seconds, so that a crash repeats little of it.
_REPORT_SECONDS = 1.0

_Call = Callable[[object], Awaitable[None]]


class InHand:
    """The events of one pop, on their way through a handler.

    An event whose handler raised is failed. If its retries are used up it is a dead letter now, and those after it
    go on. If not it comes again, and so do those after it in its partition, or order would be lost: they are put
    back unhandled. Other partitions do not notice.
    """

    def __init__(self, transport: Transport, events: Sequence[Event], is_stopping: Callable[[], bool]) -> None:
        self.completed = 0
        self.failed = 0
        #: What the handler raised that is not an event's fault, such as SystemExit.
        self.fatal: BaseException | None = None
        self._transport = transport
        self._events = events
        self._is_stopping = is_stopping
        self._lost = False

    async def together(self, call: _Call) -> None:
        """Hand the events over as one list.

        If that fails nobody knows which of them is to blame: they are handed over again, one at a time, so that a
        bad event does not use up the retries of the others.
        """
        events = self._events
        if self._is_over():
            await put_back(self._transport, events)
            return
        try:
            error = await self._try(call, list(events))
        except asyncio.CancelledError:
            await put_back(self._transport, events)
            raise
        if error is None:
            await self._complete(events)
        elif len(events) == 1 and self.fatal is None:
            await self._fail(events[0], error)
        else:
            await self.one_by_one(lambda event: call([event]))

    async def one_by_one(self, call: _Call) -> None:
        """Hand over each event alone, in order, one partition after the other."""
        waiting = list(_lanes(self._events).values())
        try:
            while waiting:
                await self._lane(waiting.pop(0), call)
        except asyncio.CancelledError:
            await put_back(self._transport, [event for lane in waiting for event in lane])
            raise

    async def _lane(self, events: Sequence[Event], call: _Call) -> None:
        clock = asyncio.get_running_loop().time
        report_at = clock() + _REPORT_SECONDS
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
                    reported, report_at = done, clock() + _REPORT_SECONDS
        except asyncio.CancelledError:
            await self._complete(events[reported:done])
            await put_back(self._transport, events[done:])
            raise
        await self._complete(events[reported:done])
        await put_back(self._transport, events[done:])

    async def _try(self, call: _Call, argument: object) -> BaseException | None:
        """Call the handler and answer what it raised; raises only when this task is cancelled."""
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
        lanes = list(_lanes(events).values())
        if not lanes:
            return
        # The last one of a partition speaks for those before it.
        results = await self._transport.ack([lane[-1] for lane in lanes])
        for lane, result in zip(lanes, results, strict=True):
            if result:
                self.completed += len(lane)
            else:
                self._lost = True
                _logger.warning(
                    "queue %r, partition %r: %d events were handled and could not be completed: %s",
                    lane[0].queue,
                    lane[0].partition,
                    len(lane),
                    result.error,
                )

    async def _fail(self, event: Event, error: BaseException) -> bool:
        """Report the failure; True if the event is a dead letter now, and those after it can go on."""
        text, trace = read_error(_from_handler(error))
        (result,) = await self._transport.ack([event], "failed", error=text, traceback=trace)
        self.failed += 1
        fate = result.error or ("it is a dead letter now" if result.dead_letter else "it will come again")
        _logger.warning(
            "queue %r, partition %r: the handler failed on event %s: %s (%s)",
            event.queue,
            event.partition,
            event.id,
            text,
            fate,
        )
        return result.dead_letter

    def _is_over(self) -> bool:
        return self._is_stopping() or self._lost or self.fatal is not None

    @asynccontextmanager
    async def renewing(self, lease_seconds: float | None) -> AsyncIterator[None]:
        """Keep the lease from ending, for as long as the handler takes."""
        task = asyncio.create_task(self._renew(lease_seconds))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _renew(self, lease_seconds: float | None) -> None:
        queue = self._events[0].queue
        while True:
            try:
                lease = lease_seconds or (await self._transport.queue(queue)).lease_seconds
                await asyncio.sleep(lease / 3)
                if await self._transport.extend(self._events, lease) is None:
                    self._lost = True
                    _logger.warning("queue %r: a lease has ended while its events were being handled", queue)
                    return
            except Exception as error:
                _logger.warning("queue %r: a lease could not be renewed, which is tried again: %s", queue, error)
                await asyncio.sleep(1.0)


async def put_back(transport: Transport, events: Sequence[Event]) -> None:
    """Give up the leases of these events, and with them those of all after them in their partitions."""
    if events:
        await transport.ack([lane[0] for lane in _lanes(events).values()], "retry")


def _lanes(events: Sequence[Event]) -> dict[int, list[Event]]:
    lanes: dict[int, list[Event]] = {}
    for event in events:
        lanes.setdefault(event.partition_id, []).append(event)
    return lanes


def _from_handler(error: BaseException) -> BaseException:
    """The error without the frames that led to the handler: the traceback begins in the user's own code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("penstock.client"):
        trace = trace.tb_next
    return error if trace is None else error.with_traceback(trace)
