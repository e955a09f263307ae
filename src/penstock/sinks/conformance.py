"""What every sink has to do, as tests that you can run on your own.

::

    from penstock.sinks.conformance import SinkConformance

    class TestShout(SinkConformance):
        def make(self):
            return Shout("shouted.txt")

        async def written(self):
            return [json.loads(line) for line in open("shouted.txt")]

pytest finds the tests in the class. They need no database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from penstock.core import json
from penstock.core.names import check_name
from penstock.log.event import Delivery, Event, StoredChunk
from penstock.log.storage.chunk import Columns
from penstock.sinks.base import Sink, TransactionalSink

#: Data that is harmless and easy to get wrong.
ODD = (
    {"n": 0, "text": "a line\nand another"},
    {"n": 1, "text": "quotes \"' and \\ backslashes"},
    {"n": 2, "text": "Zürich 東京 🚰"},
    {"n": 3, "text": ""},
    {"n": 4, "text": "\u2028 ends a line in some languages"},
)


def made_events(
    datas: Sequence[Any],
    *,
    key: str = "a",
    partition_id: int = 1,
    first: int = 0,
    appended_at: datetime = datetime(2026, 1, 31, 12, 0, tzinfo=UTC),
) -> list[Event]:
    """Events as a queue by key would deliver them, from an offset on."""
    lines = [json.encode(data) for data in datas]
    chunk = StoredChunk.of(Columns(b"\n".join(lines), len(lines)), lines, first, appended_at)
    delivery = Delivery("conformance", key, partition_id, True, "conformance")
    return [Event(delivery, chunk, first + i) for i in range(len(lines))]


class SinkConformance:
    """Subclass it, say how to make your sink and how to read back what it wrote, and let pytest run it.

    ``make`` is called several times in a test, for the same place: as a process that is started again makes it.
    ``written`` answers the data of everything that arrived at that place, in the order in which it did. Each test is
    given a new instance of the class, so that ``make`` may keep the place on ``self``.
    """

    def make(self) -> Sink:
        """A new sink."""
        raise NotImplementedError

    async def written(self) -> list[Any]:
        """What arrived, in order."""
        raise NotImplementedError

    def test_it_has_a_name_that_a_group_can_have_and_says_what_it_guarantees(self) -> None:
        """The name is the group that it reads as."""
        sink = self.make()
        assert isinstance(sink, Sink)
        assert not isinstance(sink, TransactionalSink), "a transactional sink is tested with a database"
        check_name(sink.name, "group")
        assert sink.guarantee in ("at_least_once", "exactly_once")

    def test_it_opens_and_closes_without_having_written(self) -> None:
        """A queue may be empty."""
        assert self._run(lambda sink: _nothing()) == []

    def test_what_is_written_arrives_in_order(self) -> None:
        """One batch after the other."""
        datas = [{"n": n} for n in range(30)]

        async def act(sink: Sink) -> None:
            for first in (0, 10, 20):
                await _write(sink, made_events(datas[first : first + 10], first=first))

        assert self._run(act) == datas

    def test_the_events_of_each_key_arrive_in_order(self) -> None:
        """A batch may hold events of several partitions."""
        datas = {key: [{"key": key, "n": n} for n in range(20)] for key in ("a", "b", "c")}

        async def act(sink: Sink) -> None:
            batch = [
                event
                for lane, (key, some) in enumerate(datas.items())
                for event in made_events(some, key=key, partition_id=lane)
            ]
            await _write(sink, batch)

        arrived = self._run(act)
        assert {key: [d for d in arrived if d["key"] == key] for key in datas} == datas

    def test_data_arrives_as_it_was(self) -> None:
        """Line breaks, quotes and what lies beyond ASCII."""

        async def act(sink: Sink) -> None:
            await _write(sink, made_events(ODD))

        assert self._run(act) == list(ODD)

    def test_it_goes_on_where_it_was_when_it_is_started_again(self) -> None:
        """Closed and made anew."""
        datas = [{"n": n} for n in range(20)]
        self._run(lambda sink: _write(sink, made_events(datas[:10])))

        assert self._run(lambda sink: _write(sink, made_events(datas[10:], first=10))) == datas

    def test_a_batch_that_comes_again_is_there_at_least_once_or_exactly_once(self) -> None:
        """A process that dies between writing and acknowledging is given the batch again."""
        datas = [{"n": n} for n in range(10)]
        events = made_events(datas)

        async def act() -> tuple[Sink, list[Any]]:
            dies, lives = self.make(), self.make()
            await dies.open()
            await dies.write(events)
            await dies.close()
            await lives.open()
            await _write(lives, events)
            await lives.close()
            return lives, await self.written()

        sink, arrived = asyncio.run(act())
        if sink.guarantee == "exactly_once":
            assert arrived == datas
        else:
            firsts = [data for i, data in enumerate(arrived) if data not in arrived[:i]]
            assert firsts == datas

    def test_it_lets_go_of_everything_when_it_is_closed(self) -> None:
        """Another one can be opened at the same place."""

        async def act() -> None:
            sink = self.make()
            await sink.open()
            await sink.close()
            again = self.make()
            await again.open()
            await again.close()

        asyncio.run(act())

    def _run(self, act: Callable[[Sink], Awaitable[None]]) -> list[Any]:
        async def run() -> list[Any]:
            sink = self.make()
            await sink.open()
            try:
                await act(sink)
            finally:
                await sink.close()
            return await self.written()

        return asyncio.run(run())


async def _write(sink: Sink, events: Sequence[Event]) -> None:
    await sink.write(events)
    await sink.acknowledged(events)


async def _nothing() -> None:
    pass
