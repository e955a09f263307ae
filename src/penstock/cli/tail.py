"""Looking at a queue while it grows, without consuming it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from penstock.cli import json_output
from penstock.cli.output import visible
from penstock.cli.times import show_time
from penstock.log.log import Log
from penstock.log.storage.partitions import Partition

if TYPE_CHECKING:
    from penstock.cli.output import Output
    from penstock.client.transport import Transport
    from penstock.log.event import Event
    from penstock.log.queue import Queue

#: Events of one partition that are read at a time.
_PAGE = 1_000
#: A push is announced; should that get lost, it is found after so many seconds.
_LOOK_AGAIN = 2.0
#: A server is asked every so many seconds.
_ASK_AGAIN = 0.5
#: Two looks at a busy queue lie so far apart: events are many then, and each look asks every partition.
_SPACING = 0.05


class Tail:
    """Shows every event once: the newest at first, then whatever is appended after them.

    It remembers the next offset of each partition. Offsets are dense and in commit order, so nothing can turn up
    behind it.
    """

    def __init__(self, transport: Transport, queue: str, key: str | None = None) -> None:
        self._transport = transport
        self._name = queue
        self._key = key
        self._next: dict[int, int] = {}

    async def newest(self, count: int) -> list[Event]:
        """The newest events, the oldest of them first; what is appended from now on is left to :meth:`follow`."""
        self._next = {partition.id: partition.end for partition in await self._transport.partitions(self._name)}
        found: list[Event] = []
        younger = 0
        while count and not found:
            seen = await self._transport.browse(self._name, key=self._key, limit=count + younger)
            found = [event for event in seen if event.offset < self._next.get(event.partition_id, 0)][:count]
            if len(found) == count or len(seen) < count + younger:
                break
            # So many were appended since: they are none of the newest of then.
            younger, found = younger + count - len(found), []
        return sorted(found, key=_age)

    async def follow(self) -> AsyncIterator[list[Event]]:
        """Events as they are appended, without end."""
        transport = self._transport
        while True:
            queue_id = (await transport.catalog.get(self._name)).id if isinstance(transport, Log) else 0
            seen = transport.notifier.count(queue_id) if isinstance(transport, Log) else 0
            async for events in self._appended():
                yield events
            await asyncio.sleep(_SPACING)
            if isinstance(transport, Log):
                await transport.notifier.wait(queue_id, seen, _LOOK_AGAIN)
            else:
                await asyncio.sleep(_ASK_AGAIN)

    async def _appended(self) -> AsyncIterator[list[Event]]:
        """What has been appended since the last look, a page of each partition at a time."""
        queue = await self._transport.queue(self._name)
        grown = [
            partition
            for partition in await self._transport.partitions(self._name)
            if partition.end > self._start(partition) and self._may_hold(queue, partition)
        ]
        while grown:
            page: list[Event] = []
            for partition in grown:
                page += await self._page(partition)
            wanted = [event for event in page if self._key is None or event.key == self._key]
            if wanted:
                yield sorted(wanted, key=_age)
            grown = [partition for partition in grown if partition.end > self._start(partition)]

    async def _page(self, partition: Partition) -> list[Event]:
        start = self._start(partition)
        limit = min(partition.end - start, _PAGE)
        # By the partition's number: another epoch may have one of the same name.
        events = await self._transport.read(self._name, partition.id, start, limit)
        # None at all: retention has dropped them meanwhile.
        self._next[partition.id] = events[-1].offset + 1 if events else partition.end
        return events

    def _start(self, partition: Partition) -> int:
        # A partition that was not there at first is new as a whole.
        return max(self._next.get(partition.id, 0), partition.first)

    def _may_hold(self, queue: Queue, partition: Partition) -> bool:
        return (
            self._key is None or partition.epoch != queue.epoch or queue.partition_for_key(self._key) == partition.name
        )


def print_events(out: Output, events: Sequence[Event]) -> None:
    """Print events, a line each."""
    if out.json:
        for event in events:
            out.line(json_output.event(event))
        return
    for event in events:
        when = show_time(event.appended_at, millis=True)
        where = visible(f"{event.partition}/{event.offset}")
        key = "" if event.key is None or event.key == event.partition else f"  {visible(event.key)}"
        data = visible(event.raw.decode())
        if not out.is_terminal:
            out.text(f"{when}  {where}{key}  {data}")
            continue
        from rich.text import Text

        line = Text.assemble((when, "dim"), "  ", (where, "cyan"), (key, "magenta"), "  ", data)
        out.console.print(line, soft_wrap=True)


def _age(event: Event) -> tuple[object, int, int]:
    return (event.appended_at, event.partition_id, event.offset)
