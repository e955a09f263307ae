"""Retries, dead letters and order of a sink, and its independence of other sinks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.core.errors import InvalidRequest, SinkBusy, SinkClosed, SinkRejected
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.sinks import Backoff, Call, Forward, Sink, Sinks
from tests.conditions import eventually_async
from tests.log.logs import drain, lag, letters, push
from tests.sinks.memory_sink import MemorySink

QUICK = Backoff(first=0.01, longest=0.05)


async def run(log: Log, queue: str, sink: Sink, idle: float = 0.2, **options: Any) -> Sinks:
    sinks = Sinks(log=log).add(queue, sink, **{"backoff": QUICK, **options})
    await sinks.run(idle_seconds=idle)
    return sinks


async def test_events_are_written_in_order_and_acknowledged(log: Log, queue: str) -> None:
    for key in ("a", "b"):
        await push(log, range(50), queue=queue, key=key)
    sink = MemorySink()

    await run(log, queue, sink, batch=7)

    assert (sink.data_of("a"), sink.data_of("b")) == (list(range(50)), list(range(50)))
    assert await lag(log, queue, "memory") == 0
    assert sink.calls == ["open", "close"]


async def test_failed_writes_are_retried_in_order(log: Log, queue: str) -> None:
    await push(log, range(20), queue=queue, key="a")

    class FlakySink(MemorySink):
        def next_error(self, events: Sequence[Event]) -> Exception | None:
            return OSError("connection lost") if self.attempts % 2 else None

    sink = FlakySink()
    sinks = await run(log, queue, sink)

    assert sink.data_of("a") == list(range(20))
    assert sinks.counters[queue, "memory"].retries > 0
    assert await letters(log, queue) == []


async def test_only_the_failing_event_becomes_a_dead_letter(log: Log, queue: str) -> None:
    for key in ("a", "b"):
        await push(log, range(10), queue=queue, key=key)

    class FailingSink(MemorySink):
        def next_error(self, events: Sequence[Event]) -> Exception | None:
            if any((event.key, event.data) == ("a", 4) for event in events):
                return ValueError("invalid")
            return None

    sink = FailingSink()
    sinks = await run(log, queue, sink, attempts=3)

    assert sink.data_of("a") == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert sink.data_of("b") == list(range(10))
    (letter,) = await letters(log, queue)
    assert (letter.data, letter.error) == (4, "invalid")
    assert "ValueError" in (letter.traceback or "")
    assert sinks.counters[queue, "memory"].dead_letters == 1
    assert sinks.counters[queue, "memory"].written == 19


async def test_rejected_events_become_dead_letters_at_once(log: Log, queue: str) -> None:
    await push(log, range(10), queue=queue, key="a")

    class RejectingSink(MemorySink):
        def next_error(self, events: Sequence[Event]) -> Exception | None:
            odd = frozenset(i for i, event in enumerate(events) if event.data % 2)
            return SinkRejected("odd", events=odd) if odd else None

    sink = RejectingSink()
    await run(log, queue, sink)

    assert sink.data_of("a") == [0, 2, 4, 6, 8]
    assert [letter.data for letter in await letters(log, queue)] == [1, 3, 5, 7, 9]
    assert sink.attempts == 2


async def test_a_rejection_without_events_is_located_by_smaller_batches(log: Log, queue: str) -> None:
    await push(log, range(10), queue=queue, key="a")

    class VagueSink(MemorySink):
        def next_error(self, events: Sequence[Event]) -> Exception | None:
            return SinkRejected("one of them") if any(event.data == 7 for event in events) else None

    sink = VagueSink()
    await run(log, queue, sink)

    assert sink.data_of("a") == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert [letter.data for letter in await letters(log, queue)] == [7]


async def test_a_busy_sink_uses_up_no_attempts(log: Log, queue: str) -> None:
    await push(log, range(5), queue=queue, key="a")

    class BusySink(MemorySink):
        def next_error(self, events: Sequence[Event]) -> Exception | None:
            return SinkBusy("later", retry_after=0.001) if self.attempts < 20 else None

    sink = BusySink()
    sinks = await run(log, queue, sink, attempts=1)

    assert sink.data_of("a") == list(range(5))
    assert sinks.counters[queue, "memory"].busy == 19
    assert await letters(log, queue) == []


async def test_a_failing_partition_does_not_delay_the_others(log: Log, queue: str) -> None:
    await push(log, range(3), queue=queue, key="stuck")

    class StuckSink(MemorySink):
        def next_error(self, events: Sequence[Event]) -> Exception | None:
            return OSError("no") if any(event.key == "stuck" for event in events) else None

    sink = StuckSink()
    sinks = Sinks(log=log).add(queue, sink, attempts=None, backoff=QUICK)
    running = asyncio.create_task(sinks.run())

    async def is_tried() -> object:
        return sink.attempts > 3

    await eventually_async(is_tried)
    await push(log, range(10), queue=queue, key="free")

    async def is_written() -> object:
        return sink.data_of("free") == list(range(10))

    await eventually_async(is_written)
    sinks.stop()
    await running
    # The stopped sink has released its events.
    after = MemorySink()
    await run(log, queue, after, idle=0.2)
    assert after.data_of("stuck") == [0, 1, 2]


async def test_a_busy_sink_gets_no_writes_before_retry_after(log: Log, queue: str) -> None:
    for key in ("a", "b", "c"):
        await push(log, range(2), queue=queue, key=key)
    clock = asyncio.get_running_loop().time
    tried: list[float] = []

    class BusySink(MemorySink):
        def next_error(self, events: Sequence[Event]) -> Exception | None:
            tried.append(clock())
            if self.attempts == 1:
                return OSError("each partition on its own")
            return SinkBusy("later", retry_after=0.3) if self.attempts == 2 else None

    sink = BusySink()
    await run(log, queue, sink)

    assert [tried[i] - tried[1] >= 0.3 for i in range(2, len(tried))] == [True] * 3
    assert [sink.data_of(key) for key in ("a", "b", "c")] == [[0, 1]] * 3


async def test_a_rejection_with_unknown_indices_is_located_by_smaller_batches(log: Log, queue: str) -> None:
    await push(log, range(4), queue=queue, key="a")

    class ConfusedSink(MemorySink):
        def next_error(self, events: Sequence[Event]) -> Exception | None:
            bad = any(event.data == 2 for event in events)
            return SinkRejected("the hundredth", events=frozenset((100, -1))) if bad else None

    sink = ConfusedSink()
    await run(log, queue, sink)

    assert sink.data_of("a") == [0, 1, 3]
    assert [letter.data for letter in await letters(log, queue)] == [2]


@pytest.mark.parametrize("stopped", [True, False])
async def test_a_sink_cancelled_during_a_write_is_closed(log: Log, queue: str, stopped: bool) -> None:
    await push(log, range(2), queue=queue, key="a")

    class HangingSink(MemorySink):
        async def write(self, events: Sequence[Event]) -> None:
            await super().write(events)
            await asyncio.Event().wait()

        def next_error(self, events: Sequence[Event]) -> Exception | None:
            return OSError("each partition on its own") if self.attempts == 1 else None

    sink = HangingSink()
    worker = Sinks(log=log).add(queue, sink, backoff=QUICK, lease_seconds=1).workers[0]
    running = asyncio.create_task(worker.run())

    async def is_hanging() -> object:
        return sink.received

    await eventually_async(is_hanging)
    if stopped:
        worker.stop()
        await asyncio.wait([running], timeout=0.05)
    running.cancel()
    await asyncio.wait([running])
    assert sink.calls == ["open", "close"]


async def test_a_failing_sink_does_not_delay_the_other_sinks_of_its_queue(log: Log, queue: str) -> None:
    await push(log, range(100), queue=queue, key="a")

    class DeadSink(MemorySink):
        name = "dead"

        def next_error(self, events: Sequence[Event]) -> Exception | None:
            return SinkBusy("never")

    alive = MemorySink()
    sinks = Sinks(log=log).add(queue, DeadSink(), alive, backoff=QUICK)
    running = asyncio.create_task(sinks.run())

    async def is_written() -> object:
        return alive.data_of("a") == list(range(100))

    await eventually_async(is_written)
    sinks.stop()
    await running
    assert sinks.counters[queue, "dead"].written == 0


async def test_a_sink_that_does_not_count_does_not_fill_the_queue(log: Log, queue: str) -> None:
    await log.configure(queue, {"max_depth_events": 10})

    class DeadSink(MemorySink):
        def next_error(self, events: Sequence[Event]) -> Exception | None:
            return SinkBusy("never")

    sink = DeadSink()
    sinks = Sinks(log=log).add(queue, sink, backoff=QUICK, counts=False)
    running = asyncio.create_task(sinks.run())
    await push(log, range(5), queue=queue, key="a")

    async def is_tried() -> object:
        return sink.attempts

    await eventually_async(is_tried)
    for _ in range(5):
        await push(log, range(8), queue=queue, key="a")
    sinks.stop()
    await running
    assert [(info.counts, info.lag) for info in await log.groups(queue)] == [(False, 45)]


async def test_a_misconfigured_sink_ends_alone_and_its_error_is_raised(log: Log, queue: str) -> None:
    await push(log, range(3), queue=queue, key="a")

    class MisconfiguredSink(MemorySink):
        name = "wrong"

        async def open(self) -> None:
            raise InvalidRequest("no such place")

    good = MemorySink()
    sinks = Sinks(log=log).add(queue, MisconfiguredSink(), good)
    with pytest.raises(InvalidRequest, match="no such place"):
        await sinks.run(idle_seconds=0.2)
    assert good.data_of("a") == [0, 1, 2]


async def test_a_closed_sink_ends_and_releases_its_events(log: Log, queue: str) -> None:
    await push(log, range(3), queue=queue, key="a")

    class ClosedSink(MemorySink):
        def next_error(self, events: Sequence[Event]) -> Exception | None:
            return SinkClosed("no listener")

    with pytest.raises(SinkClosed, match="no listener"):
        await Sinks(log=log).add(queue, ClosedSink()).run()
    after = MemorySink()
    await run(log, queue, after)
    assert after.data_of("a") == [0, 1, 2]
    assert await letters(log, queue) == []


async def test_two_sinks_with_one_group_are_refused(log: Log, queue: str) -> None:
    sinks = Sinks(log=log).add(queue, MemorySink())
    with pytest.raises(InvalidRequest, match="another group"):
        sinks.add(queue, MemorySink())


async def test_functions_are_called_with_events(log: Log, queue: str) -> None:
    await push(log, range(6), queue=queue, key="a")
    plain: list[Any] = []
    each: list[Any] = []

    async def one(event: Event) -> None:
        each.append(event.data)

    def many(events: list[Event]) -> None:
        plain.extend(event.data for event in events)

    sinks = Sinks(log=log).add(queue, Call(many), Call(one, each=True))
    await sinks.run(idle_seconds=0.2)

    assert plain == each == list(range(6))


@pytest.mark.slow
async def test_forward_pushes_every_event_once_if_it_is_cancelled(log: Log, queue: str) -> None:
    target = f"{queue}-copy"
    await log.configure(target)
    for key in ("a", "b"):
        await push(log, range(300), queue=queue, key=key)

    # A cancelled run leaves its transaction like a killed process.
    for _ in range(10):
        sinks = Sinks(log=log).add(queue, Forward(target), batch=20, lease_seconds=0.3)
        task = asyncio.create_task(sinks.workers[0].run(idle_seconds=0.2))
        before = sinks.workers[0].counters

        async def some(done: Any = before, task: Any = task) -> object:
            return done.batches >= 2 or task.done()

        await eventually_async(some)
        task.cancel()
        await asyncio.wait([task])
    await run(log, queue, Forward(target), idle=0.5)

    copied = await drain(log, target)
    assert {key: [e.data for e in copied if e.key == key] for key in ("a", "b")} == {
        "a": list(range(300)),
        "b": list(range(300)),
    }
