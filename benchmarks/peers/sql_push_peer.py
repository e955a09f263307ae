"""Push from SQL with penstock.push() and push_many(), in the environment and with the driver of pgmq's client."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Any

import asyncpg  # type: ignore[import-not-found]  # in the environment of pgmq
import orjson

from benchmarks.load.events import Data
from benchmarks.peers.serve import serve

_SIZE = """
SELECT d.inbox, d.events, (
    SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
    WHERE c.relnamespace = 'penstock'::regnamespace AND c.relkind = 'r'
      AND c.relname ~ format('^(chunks|ids)_%s_', q.id))
FROM penstock.depth d JOIN penstock.queues q ON q.name = d.queue WHERE d.queue = $1
"""


class SqlPush:
    """Pushes to the queues ``sql-1``, ``sql-2``, …, a new one after each clear."""

    async def open(self, url: str, tasks: int) -> dict[str, str]:
        self._connections: list[Any] = [await asyncpg.connect(url) for _ in range(tasks)]
        self._number = 0
        return {"asyncpg": version("asyncpg")}

    async def clear(self) -> None:
        self._number += 1

    async def settle(self) -> None:
        return None

    async def size(self) -> tuple[int, int]:
        """Return the number of events and the bytes of their tables, after the inbox was moved."""
        while True:
            waiting, events, stored = await self._connections[0].fetchrow(_SIZE, f"sql-{self._number}")
            if waiting == 0:
                return events, stored
            await asyncio.sleep(0.02)

    async def push(self, task: int, events: list[Data]) -> None:
        connection, queue = self._connections[task], f"sql-{self._number}"
        data = [orjson.dumps(event).decode() for event in events]
        if len(events) == 1:
            await connection.fetchval("SELECT penstock.push($1, $2, key => $3)", queue, data[0], events[0]["user"])
        else:
            keys = [event["user"] for event in events]
            await connection.fetchval("SELECT penstock.push_many($1, $2, keys => $3)", queue, data, keys)

    async def pop_ack(self, task: int, batch: int, stamps: list[int]) -> int:
        raise NotImplementedError("this peer only pushes")


if __name__ == "__main__":
    serve(SqlPush())
