"""Reads the newest events of a queue, and new ones as they are appended, without consuming them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from penstock.cli import json_output
from penstock.cli.output import Output, escape_control_characters
from penstock.cli.times import format_time
from penstock.client.transport import Transport
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.log.queue import Queue
from penstock.log.storage.partitions import Partition

#: Events of one partition per read.
_PAGE_EVENTS = 1_000
#: The longest wait for a notification. A lost one delays events by this long.
_NOTIFY_SECONDS = 2.0
#: The pause between two requests to a server, which sends no notifications.
_POLL_SECONDS = 0.5
#: The shortest pause between two reads. Each read asks every partition, so a busy queue is read in larger steps.
_MIN_PAUSE_SECONDS = 0.05


class Tail:
    """Returns every event once: first the newest ones, then those appended after them.

    It remembers the next offset of each partition. Offsets are dense and in commit order, so no event can appear
    below an offset that was read.
    """

    def __init__(self, transport: Transport, queue: str, key: str | None = None) -> None:
        self._transport = transport
        self._queue = queue
        self._key = key
        self._next_offsets: dict[int, int] = {}

    async def newest(self, count: int) -> list[Event]:
        """Return the newest events, oldest first. :meth:`follow` returns those appended from now on."""
        partitions = await self._transport.partitions(self._queue)
        self._next_offsets = {partition.id: partition.end for partition in partitions}
        events = await self._transport.browse(self._queue, key=self._key, limit=count) if count else []
        for event in events:
            # The page may contain events appended since the offsets were read.
            next_offset = max(self._next_offsets.get(event.partition_id, 0), event.offset + 1)
            self._next_offsets[event.partition_id] = next_offset
        return sorted(events, key=_append_order)

    async def follow(self) -> AsyncIterator[list[Event]]:
        """Yield events as they are appended, without end."""
        transport = self._transport
        while True:
            queue_id = (await transport.catalog.get(self._queue)).id if isinstance(transport, Log) else 0
            notified = transport.notifier.count(queue_id) if isinstance(transport, Log) else 0
            async for events in self._read_appended():
                yield events
            await asyncio.sleep(_MIN_PAUSE_SECONDS)
            if isinstance(transport, Log):
                await transport.notifier.wait(queue_id, notified, _NOTIFY_SECONDS)
            else:
                await asyncio.sleep(_POLL_SECONDS)

    async def _read_appended(self) -> AsyncIterator[list[Event]]:
        """Yield the events appended since the last read, one page of every partition at a time."""
        queue = await self._transport.queue(self._queue)
        unread = [
            partition
            for partition in await self._transport.partitions(self._queue)
            if self._has_unread(partition) and self._may_contain_key(queue, partition)
        ]
        while unread:
            page: list[Event] = []
            for partition in unread:
                page += await self._read_page(partition)
            matching = [event for event in page if self._key is None or event.key == self._key]
            if matching:
                yield sorted(matching, key=_append_order)
            unread = [partition for partition in unread if self._has_unread(partition)]

    async def _read_page(self, partition: Partition) -> list[Event]:
        start = self._next_offset(partition)
        limit = min(partition.end - start, _PAGE_EVENTS)
        # Read by partition id: partitions of two epochs may have the same name.
        events = await self._transport.read(self._queue, partition.id, start, limit)
        # An empty page means that retention has dropped the events.
        self._next_offsets[partition.id] = events[-1].offset + 1 if events else partition.end
        return events

    def _has_unread(self, partition: Partition) -> bool:
        return partition.end > self._next_offset(partition)

    def _next_offset(self, partition: Partition) -> int:
        # A partition created after the first read is read from its first offset.
        return max(self._next_offsets.get(partition.id, 0), partition.first)

    def _may_contain_key(self, queue: Queue, partition: Partition) -> bool:
        return (
            self._key is None or partition.epoch != queue.epoch or queue.partition_for_key(self._key) == partition.name
        )


def print_events(out: Output, events: Sequence[Event]) -> None:
    """Print one event per line."""
    if out.json:
        for event in events:
            out.line(json_output.event(event))
        return
    for event in events:
        appended_at = format_time(event.appended_at, millis=True)
        position = escape_control_characters(f"{event.partition}/{event.offset}")
        has_own_key = event.key is not None and event.key != event.partition
        key = f"  {escape_control_characters(str(event.key))}" if has_own_key else ""
        data = escape_control_characters(event.raw.decode())
        if not out.is_terminal:
            out.text(f"{appended_at}  {position}{key}  {data}")
            continue
        from rich.text import Text

        line = Text.assemble((appended_at, "dim"), "  ", (position, "cyan"), (key, "magenta"), "  ", data)
        out.console.print(line, soft_wrap=True)


def _append_order(event: Event) -> tuple[object, int, int]:
    return (event.appended_at, event.partition_id, event.offset)
