"""Reads a sink queue with its own group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TypeVar

import msgspec

from benchmarks.drain.plan import PARTITIONS
from penstock import Penstock

_BATCH = 10_000
_WAIT_MILLIS = 50

EventT = TypeVar("EventT")


class _Closed(msgspec.Struct):
    key: str
    window_start: datetime | int
    count: int
    total: Decimal
    max: Decimal


async def read(q: Penstock, queue: str, result: Path) -> None:
    """Write the closed windows of a queue to a CSV file for the oracle."""
    with result.open("w") as file:
        async for window in read_events(q, queue, _Closed):
            start = window.window_start
            millis = round(start.timestamp() * 1000) if isinstance(start, datetime) else start
            file.write(f"{window.key},{millis},{window.count},{window.total},{window.max},true\n")


async def read_events(q: Penstock, queue: str, kind: type[EventT]) -> AsyncIterator[EventT]:
    """Yield all events of a queue, decoded."""
    handle = q.queue(queue).group("oracle").batch(_BATCH).partitions(PARTITIONS).wait().timeout_millis(_WAIT_MILLIS)
    decoder = msgspec.json.Decoder(kind)
    while events := await handle.pop():
        for data in decoder.decode_lines(b"\n".join([event.raw for event in events])):
            yield data
        await q.ack(events)
