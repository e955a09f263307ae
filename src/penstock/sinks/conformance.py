"""Tests that every sink has to pass, for sinks of your own too.

::

    from penstock.sinks.conformance import SinkConformance

    class TestShout(SinkConformance):
        def make(self):
            return Shout("shouted.txt")

        async def written(self):
            return [json.loads(line) for line in open("shouted.txt")]

pytest collects the tests of the class. They need no database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from penstock.core import json
from penstock.core.names import check_name
from penstock.log.event import Delivery, Event
from penstock.log.storage.chunk import ChunkColumns, StoredChunk
from penstock.sinks.base import Sink, TransactionalSink

#: Data with line breaks, quotes and characters beyond ASCII.
EDGE_CASES = (
    {"n": 0, "text": "a line\nand another"},
    {"n": 1, "text": "quotes \"' and \\ backslashes"},
    {"n": 2, "text": "Zürich 東京 🚰"},
    {"n": 3, "text": ""},
    {"n": 4, "text": "\u2028 ends a line in some languages"},
)


def make_events(
    datas: Sequence[Any],
    *,
    key: str = "a",
    partition_id: int = 1,
    first: int = 0,
    appended_at: datetime = datetime(2026, 1, 31, 12, 0, tzinfo=UTC),
) -> list[Event]:
    """Return events of a queue by key, from an offset on."""
    lines = [json.encode(data) for data in datas]
    chunk = StoredChunk.of(ChunkColumns(b"\n".join(lines), len(lines)), lines, first, appended_at)
    delivery = Delivery("conformance", key, partition_id, True, "conformance")
    return [Event(delivery, chunk, first + i) for i in range(len(lines))]


class SinkConformance:
    """Subclass it, implement ``make`` and ``written``, and let pytest run it.

    A test calls ``make`` several times for the same target, like a process that is started again. ``written`` returns
    the data of all events that arrived at the target, in order. Each test has a new instance of the class, so ``make``
    can keep the target in ``self``.
    """

    def make(self) -> Sink:
        """Return a new sink."""
        raise NotImplementedError

    async def written(self) -> list[Any]:
        """Return the data that arrived, in order."""
        raise NotImplementedError

    def test_name_and_guarantee_are_valid(self) -> None:
        """The name can be the name of a consumer group."""
        sink = self.make()
        assert isinstance(sink, Sink)
        assert not isinstance(sink, TransactionalSink), "a transactional sink is tested with a database"
        check_name(sink.name, "group")
        assert sink.guarantee in ("at_least_once", "exactly_once")

    def test_opens_and_closes_without_a_write(self) -> None:
        """The queue can be empty."""
        assert self._run(lambda sink: asyncio.sleep(0)) == []

    def test_batches_arrive_in_order(self) -> None:
        """Three batches."""
        datas = [{"n": n} for n in range(30)]

        async def act(sink: Sink) -> None:
            for first in (0, 10, 20):
                await _write(sink, make_events(datas[first : first + 10], first=first))

        assert self._run(act) == datas

    def test_events_of_each_key_arrive_in_order(self) -> None:
        """A batch can have events of several partitions."""
        datas = {key: [{"key": key, "n": n} for n in range(20)] for key in ("a", "b", "c")}

        async def act(sink: Sink) -> None:
            batch = [
                event
                for partition_id, (key, values) in enumerate(datas.items())
                for event in make_events(values, key=key, partition_id=partition_id)
            ]
            await _write(sink, batch)

        arrived = self._run(act)
        assert {key: [d for d in arrived if d["key"] == key] for key in datas} == datas

    def test_data_arrives_unchanged(self) -> None:
        """Line breaks, quotes and characters beyond ASCII."""

        async def act(sink: Sink) -> None:
            await _write(sink, make_events(EDGE_CASES))

        assert self._run(act) == list(EDGE_CASES)

    def test_restarted_sink_appends(self) -> None:
        """The sink is closed and created again."""
        datas = [{"n": n} for n in range(20)]
        self._run(lambda sink: _write(sink, make_events(datas[:10])))

        assert self._run(lambda sink: _write(sink, make_events(datas[10:], first=10))) == datas

    def test_repeated_batch_arrives_as_guaranteed(self) -> None:
        """After a crash between write and acknowledgement the batch comes again."""
        datas = [{"n": n} for n in range(10)]
        events = make_events(datas)

        async def act() -> tuple[Sink, list[Any]]:
            crashed, restarted = self.make(), self.make()
            await crashed.open()
            await crashed.write(events)
            await crashed.close()
            await restarted.open()
            await _write(restarted, events)
            await restarted.close()
            return restarted, await self.written()

        sink, arrived = asyncio.run(act())
        if sink.guarantee == "exactly_once":
            assert arrived == datas
        else:
            without_repetitions = [data for i, data in enumerate(arrived) if data not in arrived[:i]]
            assert without_repetitions == datas

    def test_close_releases_the_target(self) -> None:
        """Another sink can open the same target."""

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
