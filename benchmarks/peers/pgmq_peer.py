"""pgmq: the SQL and the asyncpg client of its Python package."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import asyncpg  # type: ignore[import-not-found]  # in this peer's own environment
from pgmq.async_queue import PGMQueue  # type: ignore[import-not-found]  # in this peer's own environment
from pgmq.install import get_embedded_install_sql, get_embedded_sql_version  # type: ignore[import-not-found]  # same

from benchmarks.load.events import Data
from benchmarks.peers.serve import serve

_QUEUE = "bench"
_VISIBILITY_SECONDS = 300


class Pgmq:
    """Reads with a visibility timeout, decodes, and deletes."""

    async def open(self, url: str, tasks: int) -> dict[str, str]:
        # With an explicit connection, a call is one statement. Otherwise the client adds BEGIN and COMMIT.
        self._connections: list[Any] = [await asyncpg.connect(url) for _ in range(tasks)]
        await self._connections[0].execute(get_embedded_install_sql())
        self._pool = await asyncpg.create_pool(url, min_size=0, max_size=1)
        self._client = PGMQueue(pool=self._pool, init_extension=False)
        await self._client.create_queue(_QUEUE, conn=self._connections[0])
        return {
            "pgmq SQL": get_embedded_sql_version(),
            "pgmq client": version("pgmq"),
            "asyncpg": version("asyncpg"),
        }

    async def clear(self) -> None:
        await self._client.drop_queue(_QUEUE, conn=self._connections[0])
        await self._client.create_queue(_QUEUE, conn=self._connections[0])

    async def settle(self) -> None:
        await self._connections[0].execute(f"VACUUM ANALYZE pgmq.q_{_QUEUE}")

    async def size(self) -> tuple[int, int]:
        row = await self._connections[0].fetchrow(
            f"SELECT count(*), pg_total_relation_size('pgmq.q_{_QUEUE}') FROM pgmq.q_{_QUEUE}"  # noqa: S608 - our name
        )
        return row[0], row[1]

    async def push(self, task: int, events: list[Data]) -> None:
        connection = self._connections[task]
        if len(events) == 1:
            await self._client.send(_QUEUE, events[0], conn=connection)
        else:
            await self._client.send_batch(_QUEUE, events, conn=connection)

    async def pop_ack(self, task: int, batch: int, stamps: list[int]) -> int:
        connection = self._connections[task]
        messages = await self._client.read_batch(_QUEUE, vt=_VISIBILITY_SECONDS, batch_size=batch, conn=connection)
        if not messages:
            return 0
        stamps += [message.message["ts"] for message in messages]
        if len(messages) == 1:
            await self._client.delete(_QUEUE, messages[0].msg_id, conn=connection)
        else:
            await self._client.delete_batch(_QUEUE, [message.msg_id for message in messages], conn=connection)
        return len(messages)


if __name__ == "__main__":
    serve(Pgmq())
