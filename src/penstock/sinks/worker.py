"""One sink on one queue: reads as a group of its own, writes, acknowledges, and does not give up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.core.errors import (
    ConfigurationError,
    Conflict,
    CorruptChunk,
    DatabaseError,
    InvalidEvent,
    InvalidRequest,
    NotFound,
    QueueFull,
    SinkBusy,
    SinkClosed,
    SinkRejected,
    TransactionRefused,
)
from penstock.core.names import check_name
from penstock.db.retry import is_not_now
from penstock.log.read.lease import PopRequest
from penstock.sinks.base import Sink, TransactionalSink
from penstock.sinks.options import Counters, Pace

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.event import Event
    from penstock.log.log import Log

_logger = logging.getLogger("penstock.sinks")

#: Raised by a sink that is away, full or set up in a wrong way: no event is to blame, and none becomes a dead letter.
_NOT_THE_EVENTS = (SinkBusy, QueueFull, InvalidRequest, ConfigurationError, NotFound)

#: How long a pop waits before it is made anew.
_WAIT_SECONDS = 30.0
#: How often a sink looks whether the place that it writes to is free.
_STAND_BY_SECONDS = 0.5
#: A dead letter's error is cut after this many characters.
_LONGEST_ERROR = 2_000


class _Hold:
    """Events whose lease is kept from ending, and how often they failed in a row."""

    def __init__(self) -> None:
        self._lost = False
        self.failures = 0

    def lose(self) -> None:
        """Take note that somebody else may have them now."""
        self._lost = True

    def is_lost(self) -> bool:
        """Whether somebody else may."""
        return self._lost


class Outlet:
    """Brings what a group has to read to a sink.

    A batch that fails is taken apart: each of its partitions is tried on its own, in order, while the others go on. So
    one bad event holds back those behind it in its partition, until it is written or a dead letter, and nobody else.
    """

    def __init__(self, log: Log, queue: str, sink: Sink, *, group: str | None = None, pace: Pace | None = None) -> None:
        given: object = sink
        if not isinstance(given, Sink):
            raise InvalidRequest(f"a sink is an instance of penstock.sinks.Sink, not {type(given).__name__}")
        self.queue = check_name(queue, "queue")
        self.group = check_name(sink.name if group is None else group, "group")
        self.sink = sink
        self.counters = Counters()
        self._log = log
        self._pace = pace or Pace()
        self._batch = self._pace.batch or sink.batch
        self._writing = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._lanes: set[asyncio.Task[None]] = set()
        self._conn: AsyncConnection[Any] | None = None
        self._failures = 0
        #: Nobody writes before: the sink has said that it is busy.
        self._rest_until = 0.0
        self._closed: SinkClosed | None = None
        #: Whether it waits for another process to let go of the place that it writes to.
        self.stands_by = False

    def stop(self) -> None:
        """Finish the batch in hand and end; what waits for another attempt is put back."""
        self._stopping.set()

    async def run(self, idle_seconds: float | None = None) -> None:
        """Work until told to stop, or until there has been nothing to do for so long."""
        self.counters.running = True
        opened = False
        try:
            opened = await self._open(idle_seconds)
            if opened:
                await self._subscribe()
                await self._read(idle_seconds)
            self._stopping.set()
            await self._end_lanes()
        except BaseException:
            for lane in self._lanes:
                lane.cancel()
            raise
        finally:
            self._stopping.set()
            try:
                await self._end_lanes()
            finally:
                self.counters.running = False
                if self._conn is not None:
                    await self._conn.close()
                if opened:
                    await self.sink.close()
        if self._closed is not None:
            raise self._closed

    async def _end_lanes(self) -> None:
        if self._lanes:
            await asyncio.wait(self._lanes)

    def _end_with(self, error: SinkClosed) -> None:
        self._closed = error
        self._stopping.set()

    async def _open(self, idle_seconds: float | None) -> bool:
        clock = asyncio.get_running_loop().time
        begun = clock()
        while not self._stopping.is_set():
            try:
                await self.sink.open()
                self.stands_by = False
                return True
            except (InvalidRequest, ConfigurationError, NotFound):
                raise
            except Conflict as error:
                if idle_seconds is not None and clock() - begun >= idle_seconds:
                    raise
                if not self.stands_by:
                    _logger.warning("%s: %s; until then this one stands by", self.group, error)
                self.stands_by = True
                await self._sleep(_STAND_BY_SECONDS)
            except Exception as error:
                await self._pause(error)
        return False

    # Reading

    async def _subscribe(self) -> None:
        """Make the group, if it is to be told something before it reads."""
        while self._pace.counts is not None and not self._stopping.is_set():
            try:
                await self._log.subscribe(self.queue, self.group, self._pace.start)
                await self._log.configure_group(self.queue, self.group, counts=self._pace.counts)
                return
            except DatabaseError as error:
                await self._pause(error)

    async def _read(self, idle_seconds: float | None) -> None:
        clock = asyncio.get_running_loop().time
        quiet_since = ticked_at = clock()
        tick = self.sink.tick_seconds if isinstance(self.sink, TransactionalSink) else None
        while not self._stopping.is_set():
            now = clock()
            wait = _WAIT_SECONDS if tick is None else min(max(ticked_at + tick - now, 0.0), _WAIT_SECONDS)
            if idle_seconds is not None:
                wait = min(wait, max(quiet_since + idle_seconds - now, 0.0))
            try:
                events = await self._pop(wait)
            except (DatabaseError, CorruptChunk) as error:
                await self._pause(error)
                continue
            if events:
                await self._deliver(events)
                quiet_since = clock()
                if len(events) < self._batch and self._pace.every:
                    await self._sleep(self._pace.every)
            if tick is not None and clock() >= ticked_at + tick:
                ticked_at = clock()
                await self._tick()
            if self._lanes:
                quiet_since = clock()
            elif idle_seconds is not None and not events and clock() - quiet_since >= idle_seconds:
                return

    async def _pop(self, wait: float) -> Sequence[Event]:
        while len(self._lanes) >= self._pace.stuck and not self._stopping.is_set():
            await asyncio.wait(self._lanes, return_when=asyncio.FIRST_COMPLETED)
        request = PopRequest(
            self.queue,
            self.group,
            batch=self._batch,
            partitions=self._pace.partitions,
            wait_seconds=wait,
            lease_seconds=self._pace.lease_seconds,
            subscribe_from=self._pace.start,
        )
        pop = asyncio.create_task(self._log.pop(request))
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([pop, stopped], return_when=asyncio.FIRST_COMPLETED)
            if not pop.done():
                pop.cancel()
                await asyncio.wait([pop])
            return [] if pop.cancelled() else pop.result()
        finally:
            stopped.cancel()
            pop.cancel()

    # Writing

    async def _deliver(self, events: Sequence[Event]) -> None:
        """Write a batch, or let each of its partitions try on its own."""
        async with self._holding(events) as hold:
            while not (hold.is_lost() or self._stopping.is_set()):
                try:
                    if await self._write(events, hold):
                        return
                except SinkClosed as error:
                    self._end_with(error)
                except _NOT_THE_EVENTS as error:
                    await self._wait_busy(error, hold)
                except Exception as error:
                    if not isinstance(error, SinkRejected):
                        await self._pause(error, hold)
                    break
        if hold.is_lost():
            self._lose(events)
            return
        lanes: dict[int, list[Event]] = {}
        for event in events:
            lanes.setdefault(event.partition_id, []).append(event)
        for lane in lanes.values():
            task = asyncio.create_task(self._work_off(lane))
            self._lanes.add(task)
            task.add_done_callback(self._lanes.discard)

    async def _work_off(self, lane: Sequence[Event]) -> None:
        """Write a partition's events in order, in pieces that become smaller until it is known which one is bad."""
        pieces = [list(lane)]
        failures = 0
        async with self._holding(lane) as hold:
            while pieces and not (hold.is_lost() or self._stopping.is_set()):
                piece = pieces[0]
                try:
                    if not await self._write(piece, hold):
                        continue
                except SinkClosed as error:
                    self._end_with(error)
                    continue
                except _NOT_THE_EVENTS as error:
                    await self._wait_busy(error, hold)
                    continue
                except Exception as error:
                    rejected = isinstance(error, SinkRejected)
                    if len(piece) > 1:
                        middle = len(piece) // 2
                        pieces[:1] = [piece[:middle], piece[middle:]]
                        if not rejected:
                            await self._pause(error, hold)
                        continue
                    failures += 1
                    if not rejected and (self._pace.attempts is None or failures < self._pace.attempts):
                        await self._pause(error, hold)
                        continue
                    if not await self._bury(piece[0], error):
                        hold.lose()
                        continue
                pieces.pop(0)
                failures = 0
            rest = [event for piece in pieces for event in piece]
            if rest and hold.is_lost():
                self._lose(rest)
            elif rest:
                await self._put_back(rest)

    async def _write(self, events: Sequence[Event], hold: _Hold) -> bool:
        """Write and acknowledge; events that the sink names as bad are left out, and become dead letters with it.

        False, if there was no time for it any more.
        """
        left = list(events)
        bad: list[tuple[Event, str]] = []
        while True:
            try:
                async with self._writing:
                    if (rest := self._rest_until - asyncio.get_running_loop().time()) > 0:
                        await self._sleep(rest)
                    if hold.is_lost() or self._stopping.is_set():
                        return False
                    if isinstance(self.sink, TransactionalSink):
                        await self._transact(self.sink, left, bad)
                    elif left:
                        await self.sink.write(left)
                break
            except SinkRejected as error:
                named = {i for i in error.events or () if i in range(len(left))}
                if not named or len(left) == 1:
                    raise
                bad += [(event, _text(error)) for i, event in enumerate(left) if i in named]
                left = [event for i, event in enumerate(left) if i not in named]
            except TransactionRefused:
                hold.lose()
                return False
        if not isinstance(self.sink, TransactionalSink) and not await self._acknowledge(left, bad):
            hold.lose()
            return False
        self._failures = hold.failures = 0
        self.counters.written += len(left)
        self.counters.batches += 1
        self.counters.dead_letters += len(bad)
        self.counters.error = None
        return True

    async def _acknowledge(self, written: Sequence[Event], bad: Sequence[tuple[Event, str]]) -> bool:
        try:
            if bad:
                said: list[tuple[Event, object, str]] = [(event, True, "") for event in written]
                said += [(event, "dead_letter", why) for event, why in bad]
                taken = all(await self._log.ack_each(said))
            else:
                taken = all(await self._log.ack(written))
        except DatabaseError as error:
            # Whether it was heard is not known; if not, the events come again when their lease ends.
            await self._pause(error)
            return False
        if taken:
            await self.sink.acknowledged(written)
        return taken

    async def _transact(
        self, sink: TransactionalSink, events: Sequence[Event], bad: Sequence[tuple[Event, str]]
    ) -> None:
        said: list[Any] = [(event, True, "") for event in events]
        said += [(event, "dead_letter", why) for event, why in bad]
        try:
            if self._conn is None or self._conn.closed or self._conn.broken:
                self._conn = await self._log.database.connect()
            async with self._conn.transaction():
                # The positions first, then the sink's own tables, then the partitions: locks have one order everywhere.
                if said:
                    await self._log.transact(said, [], connection=self._conn)
                pushes = await sink.write_in(self._conn, events)
                if pushes:
                    await self._log.transact([], pushes, connection=self._conn)
        except InvalidEvent as error:
            raise SinkRejected(str(error)) from error
        except (psycopg.Error, DatabaseError) as error:
            if isinstance(error, psycopg.Error) and not is_not_now(error):
                raise
            # Not the events' fault. If it was committed after all, what is repeated is refused.
            raise SinkBusy(f"the database could not do it now: {str(error).strip()}") from error

    async def _tick(self) -> None:
        try:
            async with self._writing:
                if isinstance(self.sink, TransactionalSink):
                    await self._transact(self.sink, [], [])
        except Exception as error:
            await self._pause(error)

    async def _bury(self, event: Event, error: BaseException) -> bool:
        trace = None if isinstance(error, SinkRejected) else "".join(traceback.format_exception(error))
        try:
            (result,) = await self._log.ack(
                [event], "dead_letter", error=_text(error), stage=f"sink {self.group}", traceback=trace
            )
        except DatabaseError as gone:
            await self._pause(gone)
            return False
        if result:
            self.counters.dead_letters += 1
            _logger.warning(
                "%s: event %s of queue %r is a dead letter now: %s", self.group, event.id, self.queue, _text(error)
            )
        return bool(result)

    # Waiting

    async def _wait_busy(self, error: Exception, hold: _Hold) -> None:
        self.counters.busy += 1
        self.counters.error = _text(error)
        hold.failures += 1
        asked: float | None = getattr(error, "retry_after", None)
        pause = self._pace.backoff.pause(hold.failures) if asked is None else max(asked, 0.0)
        is_busy = isinstance(error, SinkBusy | QueueFull)
        if is_busy:
            # Whoever is too busy for these is so for others too.
            self._rest_until = max(self._rest_until, asyncio.get_running_loop().time() + pause)
        level = logging.WARNING if asked is None else logging.INFO
        _logger.log(level, "%s: %s; tried again in %.1f s", self.group, _text(error), pause)
        await self._sleep(pause)

    async def _pause(self, error: BaseException, hold: _Hold | None = None) -> None:
        self.counters.retries += 1
        self.counters.error = _text(error)
        if hold is None:
            self._failures += 1
        else:
            hold.failures += 1
        pause = self._pace.backoff.pause(self._failures if hold is None else hold.failures)
        _logger.warning("%s: %s; tried again in %.1f s", self.group, _text(error), pause)
        await self._sleep(pause)

    async def _sleep(self, seconds: float) -> None:
        """Wait, but not when it is time to stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    # Leases

    @asynccontextmanager
    async def _holding(self, events: Sequence[Event]) -> AsyncIterator[_Hold]:
        hold = _Hold()
        task = asyncio.create_task(self._renew(events, hold))
        try:
            yield hold
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _renew(self, events: Sequence[Event], hold: _Hold) -> None:
        # One of each partition is enough; where all were acknowledged meanwhile there is nothing to keep.
        firsts = list({event.partition_id: event for event in reversed(events)}.values())
        seconds = self._pace.lease_seconds
        while True:
            await asyncio.sleep(seconds / 3)
            try:
                if await self._log.extend(firsts, seconds) is None:
                    hold.lose()
                    return
            except DatabaseError as error:
                _logger.warning("%s: a lease could not be renewed, which is tried again: %s", self.group, error)

    async def _put_back(self, events: Sequence[Event]) -> None:
        firsts = list({event.partition_id: event for event in reversed(events)}.values())
        with contextlib.suppress(DatabaseError):
            await self._log.ack(firsts, "retry")

    def _lose(self, events: Sequence[Event]) -> None:
        self.counters.lost += len(events)
        _logger.warning(
            "%s: the lease of %d events of queue %r has ended; they come again", self.group, len(events), self.queue
        )


def _text(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return (text if len(text) <= _LONGEST_ERROR else text[:_LONGEST_ERROR] + " …").replace("\x00", "�")
