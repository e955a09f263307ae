"""Procrastinate: its schema, psycopg connector and job manager, used like its worker does."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, LiteralString

from procrastinate import App, PsycopgConnector  # type: ignore[import-not-found]  # in this peer's own environment
from procrastinate.jobs import Job, Status  # type: ignore[import-not-found]  # same

from benchmarks.load.events import Data
from benchmarks.peers.serve import serve

_QUEUE = "bench"


class Procrastinate:
    """Fetches, finishes and deletes one job at a time, like its worker."""

    async def open(self, url: str, tasks: int) -> dict[str, str]:
        self._app = App(connector=PsycopgConnector(conninfo=url, min_size=tasks, max_size=tasks))
        await self._app.open_async()
        await self._app.schema_manager.apply_schema_async()
        self._jobs = self._app.job_manager
        self._workers = [await self._jobs.register_worker() for _ in range(tasks)]
        return {"procrastinate": version("procrastinate"), "psycopg": version("psycopg")}

    async def clear(self) -> None:
        await self._execute("TRUNCATE procrastinate_jobs, procrastinate_events CASCADE")

    async def settle(self) -> None:
        async with self._app.connector.pool.connection() as conn:
            await conn.set_autocommit(True)
            await conn.execute("VACUUM ANALYZE procrastinate_jobs")
            await conn.execute("VACUUM ANALYZE procrastinate_events")
            await conn.set_autocommit(False)

    async def size(self) -> tuple[int, int]:
        async with self._app.connector.pool.connection() as conn:
            cursor = await conn.execute(
                "SELECT count(*), pg_total_relation_size('procrastinate_jobs') "
                "+ pg_total_relation_size('procrastinate_events') FROM procrastinate_jobs"
            )
            row = await cursor.fetchone()
        return row[0], row[1]

    async def push(self, task: int, events: list[Data]) -> None:
        await self._jobs.batch_defer_jobs_async(
            [Job(queue=_QUEUE, lock=None, queueing_lock=None, task_name="bench", task_kwargs=event) for event in events]
        )

    async def pop_ack(self, task: int, batch: int, stamps: list[int]) -> int:
        # It cannot fetch several jobs at once.
        job: Any = await self._jobs.fetch_job([_QUEUE], self._workers[task])
        if job is None:
            return 0
        stamps.append(job.task_kwargs["ts"])
        await self._jobs.finish_job(job, Status.SUCCEEDED, delete_job=True)
        return 1

    async def _execute(self, statement: LiteralString) -> None:
        await self._app.connector.execute_query_async(statement)


if __name__ == "__main__":
    serve(Procrastinate())
