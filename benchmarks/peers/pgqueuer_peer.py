"""PgQueuer: its schema and queries, over asyncpg."""

from __future__ import annotations

from datetime import timedelta
from importlib.metadata import version
from typing import Any
from uuid import uuid4

import asyncpg  # type: ignore[import-not-found]  # in this peer's own environment
import orjson
from pgqueuer.ports.repository import EntrypointExecutionParameter  # type: ignore[import-not-found]  # same
from pgqueuer.queries import Queries  # type: ignore[import-not-found]  # same

from benchmarks.load.events import Data
from benchmarks.peers.serve import serve

_ENTRYPOINT = "bench"
_LEASE = timedelta(seconds=300)


class PgQueuer:
    """Dequeues, decodes, and logs as successful, like its queue manager."""

    async def open(self, url: str, tasks: int) -> dict[str, str]:
        self._connections: list[Any] = [await asyncpg.connect(url) for _ in range(tasks)]
        self._queries = [Queries.from_asyncpg_connection(connection) for connection in self._connections]
        self._managers = [uuid4() for _ in range(tasks)]
        self._entrypoints = {_ENTRYPOINT: EntrypointExecutionParameter(concurrency_limit=0)}
        await self._queries[0].install()
        return {"pgqueuer": version("pgqueuer"), "asyncpg": version("asyncpg")}

    async def clear(self) -> None:
        await self._connections[0].execute("TRUNCATE pgqueuer, pgqueuer_log")

    async def settle(self) -> None:
        await self._connections[0].execute("VACUUM ANALYZE pgqueuer")
        await self._connections[0].execute("VACUUM ANALYZE pgqueuer_log")

    async def size(self) -> tuple[int, int]:
        row = await self._connections[0].fetchrow(
            "SELECT count(*), pg_total_relation_size('pgqueuer') + pg_total_relation_size('pgqueuer_log') FROM pgqueuer"
        )
        return row[0], row[1]

    async def push(self, task: int, events: list[Data]) -> None:
        queries = self._queries[task]
        if len(events) == 1:
            await queries.enqueue(_ENTRYPOINT, orjson.dumps(events[0]))
            return
        payloads = [orjson.dumps(event) for event in events]
        await queries.enqueue([_ENTRYPOINT] * len(events), payloads, [0] * len(events))

    async def pop_ack(self, task: int, batch: int, stamps: list[int]) -> int:
        queries = self._queries[task]
        jobs = await queries.dequeue(batch, self._entrypoints, self._managers[task], None, _LEASE)
        if not jobs:
            return 0
        stamps += [orjson.loads(job.payload)["ts"] for job in jobs]
        await queries.log_jobs([(job, "successful", None) for job in jobs])
        return len(jobs)


if __name__ == "__main__":
    serve(PgQueuer())
