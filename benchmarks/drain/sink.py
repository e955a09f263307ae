"""The sink queue, read by a group of its own."""

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


_Said = TypeVar("_Said")


class _Closed(msgspec.Struct):
    key: str
    window_start: datetime | int
    count: int
    total: Decimal
    max: Decimal


async def read(q: Penstock, queue: str, result: Path) -> None:
    """Write the closed windows of a queue into a file, as the oracle reads them."""
    with result.open("w") as file:
        async for said in everything(q, queue, _Closed):
            start = said.window_start
            millis = round(start.timestamp() * 1000) if isinstance(start, datetime) else start
            file.write(f"{said.key},{millis},{said.count},{said.total},{said.max},true\n")


async def everything(q: Penstock, queue: str, kind: type[_Said]) -> AsyncIterator[_Said]:
    """All events of a queue."""
    handle = q.queue(queue).group("oracle").batch(_BATCH).partitions(PARTITIONS).wait().timeout_millis(_WAIT_MILLIS)
    decoder = msgspec.json.Decoder(kind)
    while events := await handle.pop():
        for said in decoder.decode_lines(b"\n".join([event.raw for event in events])):
            yield said
        await q.ack(events)
