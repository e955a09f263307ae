"""The sink queue, read by a group of its own."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path

import msgspec

from benchmarks.drain.plan import PARTITIONS
from penstock import Penstock

_BATCH = 10_000
_WAIT_MILLIS = 50


class _Closed(msgspec.Struct):
    key: str
    window_start: datetime | int
    count: int
    total: Decimal
    max: Decimal


async def read(q: Penstock, queue: str, result: Path) -> None:
    """Write the closed windows of a queue into a file, as the oracle reads them."""
    handle = q.queue(queue).group("oracle").batch(_BATCH).partitions(PARTITIONS).wait().timeout_millis(_WAIT_MILLIS)
    decoder = msgspec.json.Decoder(_Closed)
    with result.open("w") as file:
        while events := await handle.pop():
            for said in decoder.decode_lines(b"\n".join([event.raw for event in events])):
                start = said.window_start
                millis = round(start.timestamp() * 1000) if isinstance(start, datetime) else start
                file.write(f"{said.key},{millis},{said.count},{said.total},{said.max},true\n")
            await q.ack(events)
