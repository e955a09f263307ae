"""What the runner does for every sink: retries, dead letters, order, and nobody held back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.core.errors import InvalidRequest, SinkBusy, SinkClosed, SinkRejected
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.sinks import Backoff, Call, Forward, Sink, Sinks
from tests.log.logs import drain, eventually, lag, letters, push

QUICK = Backoff(first=0.01, longest=0.05)


class Remember(Sink):
    """Keeps what it is given; raises what it is told to, first."""

    name = "remember"

    def __init__(self) -> None:
        self.got: list[Event] = []
        self.tries = 0
        self.calls: list[str] = []

    def trouble(self, events: Sequence[Event]) -> Exception | None:
        return None

    async def open(self) -> None:
        self.calls.append("open")

    async def write(self, events: Sequence[Event]) -> None:
        self.tries += 1
        error = self.trouble(events)
        if error is not None:
            raise error
        self.got += events

    async def close(self) -> None:
        self.calls.append("close")

    def of(self, key: str) -> list[Any]:
        return [event.data for event in self.got if event.key == key]


async def run(log: Log, queue: str, sink: Sink, idle: float = 0.2, **pace: Any) -> Sinks:
    sinks = Sinks(log=log).add(queue, sink, **{"backoff": QUICK, **pace})
    await sinks.run(idle_seconds=idle)
    return sinks


async def test_events_are_written_in_order_and_acknowledged(log: Log, queue: str) -> None:
    for key in ("a", "b"):
        await push(log, range(50), queue=queue, key=key)
    sink = Remember()

    await run(log, queue, sink, batch=7)

    assert (sink.of("a"), sink.of("b")) == (list(range(50)), list(range(50)))
    assert await lag(log, queue, "remember") == 0
    assert sink.calls == ["open", "close"]


async def test_what_fails_is_tried_again_and_arrives_in_order(log: Log, queue: str) -> None:
    await push(log, range(20), queue=queue, key="a")

    class Shaky(Remember):
        def trouble(self, events: Sequence[Event]) -> Exception | None:
            return OSError("a bad line") if self.tries % 2 else None

    sink = Shaky()
    sinks = await run(log, queue, sink)

    assert sink.of("a") == list(range(20))
    assert sinks.counters[queue, "remember"].retries > 0
    assert await letters(log, queue) == []


async def test_an_event_that_always_fails_becomes_a_dead_letter_and_its_neighbours_do_not(log: Log, queue: str) -> None:
    for key in ("a", "b"):
        await push(log, range(10), queue=queue, key=key)

    class Allergic(Remember):
        def trouble(self, events: Sequence[Event]) -> Exception | None:
            if any((event.key, event.data) == ("a", 4) for event in events):
                return ValueError("not that one")
            return None

    sink = Allergic()
    sinks = await run(log, queue, sink, attempts=3)

    assert sink.of("a") == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert sink.of("b") == list(range(10))
    (letter,) = await letters(log, queue)
    assert (letter.data, letter.error) == (4, "not that one")
    assert "ValueError" in (letter.traceback or "")
    assert sinks.counters[queue, "remember"].dead_letters == 1
    assert sinks.counters[queue, "remember"].written == 19


async def test_events_that_the_sink_names_as_bad_become_dead_letters_at_once(log: Log, queue: str) -> None:
    await push(log, range(10), queue=queue, key="a")

    class Picky(Remember):
        def trouble(self, events: Sequence[Event]) -> Exception | None:
            odd = frozenset(i for i, event in enumerate(events) if event.data % 2)
            return SinkRejected("odd", events=odd) if odd else None

    sink = Picky()
    await run(log, queue, sink)

    assert sink.of("a") == [0, 2, 4, 6, 8]
    assert [letter.data for letter in await letters(log, queue)] == [1, 3, 5, 7, 9]
    assert sink.tries == 2


async def test_a_rejection_that_names_nobody_is_found_out_by_trying(log: Log, queue: str) -> None:
    await push(log, range(10), queue=queue, key="a")

    class Vague(Remember):
        def trouble(self, events: Sequence[Event]) -> Exception | None:
            return SinkRejected("one of them") if any(event.data == 7 for event in events) else None

    sink = Vague()
    await run(log, queue, sink)

    assert sink.of("a") == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert [letter.data for letter in await letters(log, queue)] == [7]


async def test_a_busy_sink_is_waited_for_and_nothing_counts_as_an_attempt(log: Log, queue: str) -> None:
    await push(log, range(5), queue=queue, key="a")

    class Busy(Remember):
        def trouble(self, events: Sequence[Event]) -> Exception | None:
            return SinkBusy("later", retry_after=0.001) if self.tries < 20 else None

    sink = Busy()
    sinks = await run(log, queue, sink, attempts=1)

    assert sink.of("a") == list(range(5))
    assert sinks.counters[queue, "remember"].busy == 19
    assert await letters(log, queue) == []


async def test_a_stuck_partition_does_not_hold_back_the_others(log: Log, queue: str) -> None:
    await push(log, range(3), queue=queue, key="stuck")

    class Stuck(Remember):
        def trouble(self, events: Sequence[Event]) -> Exception | None:
            return OSError("no") if any(event.key == "stuck" for event in events) else None

    sink = Stuck()
    sinks = Sinks(log=log).add(queue, sink, attempts=None, backoff=QUICK)
    running = asyncio.create_task(sinks.run())

    async def tried() -> object:
        return sink.tries > 3

    await eventually(tried)
    await push(log, range(10), queue=queue, key="free")

    async def written() -> object:
        return sink.of("free") == list(range(10))

    await eventually(written)
    sinks.stop()
    await running
    # What was in hand is put back at once, for whoever comes next.
    after = Remember()
    await run(log, queue, after, idle=0.2)
    assert after.of("stuck") == [0, 1, 2]


async def test_a_sink_that_is_busy_is_left_alone_by_all_who_wait_for_it(log: Log, queue: str) -> None:
    for key in ("a", "b", "c"):
        await push(log, range(2), queue=queue, key=key)
    clock = asyncio.get_running_loop().time
    tried: list[float] = []

    class Busy(Remember):
        def trouble(self, events: Sequence[Event]) -> Exception | None:
            tried.append(clock())
            if self.tries == 1:
                return OSError("each partition on its own")
            return SinkBusy("later", retry_after=0.3) if self.tries == 2 else None

    sink = Busy()
    await run(log, queue, sink)

    assert [tried[i] - tried[1] >= 0.3 for i in range(2, len(tried))] == [True] * 3
    assert [sink.of(key) for key in ("a", "b", "c")] == [[0, 1]] * 3


async def test_a_rejection_that_names_nobody_who_is_there_is_found_out_by_trying(log: Log, queue: str) -> None:
    await push(log, range(4), queue=queue, key="a")

    class Confused(Remember):
        def trouble(self, events: Sequence[Event]) -> Exception | None:
            bad = any(event.data == 2 for event in events)
            return SinkRejected("the hundredth", events=frozenset((100, -1))) if bad else None

    sink = Confused()
    await run(log, queue, sink)

    assert sink.of("a") == [0, 1, 3]
    assert [letter.data for letter in await letters(log, queue)] == [2]


@pytest.mark.parametrize("stopped", [True, False])
async def test_a_sink_is_closed_also_when_it_is_cancelled_in_the_middle_of_a_write(
    log: Log, queue: str, stopped: bool
) -> None:
    await push(log, range(2), queue=queue, key="a")

    class Hanging(Remember):
        async def write(self, events: Sequence[Event]) -> None:
            await super().write(events)
            await asyncio.Event().wait()

        def trouble(self, events: Sequence[Event]) -> Exception | None:
            return OSError("each partition on its own") if self.tries == 1 else None

    sink = Hanging()
    outlet = Sinks(log=log).add(queue, sink, backoff=QUICK, lease_seconds=1).outlets[0]
    running = asyncio.create_task(outlet.run())

    async def hangs() -> object:
        return sink.got

    await eventually(hangs)
    if stopped:
        outlet.stop()
        await asyncio.wait([running], timeout=0.05)
    running.cancel()
    await asyncio.wait([running])
    assert sink.calls == ["open", "close"]


async def test_a_dead_sink_does_not_hold_back_the_others_of_its_queue(log: Log, queue: str) -> None:
    await push(log, range(100), queue=queue, key="a")

    class Dead(Remember):
        name = "dead"

        def trouble(self, events: Sequence[Event]) -> Exception | None:
            return SinkBusy("never")

    alive = Remember()
    sinks = Sinks(log=log).add(queue, Dead(), alive, backoff=QUICK)
    running = asyncio.create_task(sinks.run())

    async def written() -> object:
        return alive.of("a") == list(range(100))

    await eventually(written)
    sinks.stop()
    await running
    assert sinks.counters[queue, "dead"].written == 0


async def test_a_sink_that_nobody_is_to_wait_for_does_not_make_the_queue_full(log: Log, queue: str) -> None:
    await log.configure(queue, {"max_depth_events": 10})

    class Dead(Remember):
        def trouble(self, events: Sequence[Event]) -> Exception | None:
            return SinkBusy("never")

    sink = Dead()
    sinks = Sinks(log=log).add(queue, sink, backoff=QUICK, counts=False)
    running = asyncio.create_task(sinks.run())
    await push(log, range(5), queue=queue, key="a")

    async def tried() -> object:
        return sink.tries

    await eventually(tried)
    for _ in range(5):
        await push(log, range(8), queue=queue, key="a")
    sinks.stop()
    await running
    assert [(info.counts, info.lag) for info in await log.groups(queue)] == [(False, 45)]


async def test_a_sink_that_is_set_up_in_a_wrong_way_ends_alone_and_is_told_of(log: Log, queue: str) -> None:
    await push(log, range(3), queue=queue, key="a")

    class Wrong(Remember):
        name = "wrong"

        async def open(self) -> None:
            raise InvalidRequest("no such place")

    good = Remember()
    sinks = Sinks(log=log).add(queue, Wrong(), good)
    with pytest.raises(InvalidRequest, match="no such place"):
        await sinks.run(idle_seconds=0.2)
    assert good.of("a") == [0, 1, 2]


async def test_a_sink_that_is_gone_for_good_ends_and_leaves_its_events(log: Log, queue: str) -> None:
    await push(log, range(3), queue=queue, key="a")

    class Gone(Remember):
        def trouble(self, events: Sequence[Event]) -> Exception | None:
            return SinkClosed("nobody listens")

    with pytest.raises(SinkClosed, match="nobody listens"):
        await Sinks(log=log).add(queue, Gone()).run()
    after = Remember()
    await run(log, queue, after)
    assert after.of("a") == [0, 1, 2]
    assert await letters(log, queue) == []


async def test_two_sinks_cannot_share_a_group_by_mistake(log: Log, queue: str) -> None:
    sinks = Sinks(log=log).add(queue, Remember())
    with pytest.raises(InvalidRequest, match="another group"):
        sinks.add(queue, Remember())


async def test_functions_are_sinks(log: Log, queue: str) -> None:
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


async def test_another_queue_gets_every_event_once_although_the_process_dies(log: Log, queue: str) -> None:
    target = f"{queue}-copy"
    await log.configure(target)
    for key in ("a", "b"):
        await push(log, range(300), queue=queue, key=key)

    # Cut off in the middle again and again: cancelled, as a process that is killed leaves its transaction.
    for _ in range(10):
        sinks = Sinks(log=log).add(queue, Forward(target), batch=20, lease_seconds=0.3)
        task = asyncio.create_task(sinks.outlets[0].run(idle_seconds=0.2))
        before = sinks.outlets[0].counters

        async def some(done: Any = before, task: Any = task) -> object:
            return done.batches >= 2 or task.done()

        await eventually(some)
        task.cancel()
        await asyncio.wait([task])
    await run(log, queue, Forward(target), idle=0.5)

    copied = await drain(log, target)
    assert {key: [e.data for e in copied if e.key == key] for key in ("a", "b")} == {
        "a": list(range(300)),
        "b": list(range(300)),
    }
