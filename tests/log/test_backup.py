"""Backups taken while producers and a pipeline run, and restored elsewhere.

The pipeline pops events, and acks them and pushes their results in one transaction. So in any backup each event is
either waiting or has its result.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import NotFound, Penstock
from penstock.db.embedded.server import EmbeddedPostgres
from tests.backups import run_program, take_base_backup
from tests.conftest import reachable_directory
from tests.servers import Server

pytestmark = pytest.mark.slow

KEYS = ("ada", "bob", "cyd")


class Load:
    """Producers, a pipeline from ``in`` to ``out``, and the acknowledged pushes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.journal: Counter[str] = Counter()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with Penstock(self._url) as q:
            # Leases of consumers that are gone expire soon.
            await q.queue("in").config(lease_time=2).create()
            await q.queue("out").create()
            stopping = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for key in KEYS:
                    group.create_task(self._produce(q, key, stopping))
                group.create_task(pipe(q, stopping.is_set))
                try:
                    yield
                finally:
                    stopping.set()

    async def _produce(self, q: Penstock, key: str, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            n = self.journal[key]
            await q.queue("in").push([{"data": n, "key": key, "id": f"{key}-{n}"}])
            self.journal[key] = n + 1

    async def reaches(self, least: int) -> None:
        """Wait until every producer has pushed so many events."""
        async with asyncio.timeout(60):
            while min(self.journal[key] for key in KEYS) < least:  # noqa: ASYNC110 - it is counted in this loop
                await asyncio.sleep(0.005)


async def pipe(q: Penstock, is_done: Callable[[], bool]) -> None:
    """Move events from one queue to the other, exactly once."""
    group = q.queue("in").group("pipe").batch(7)
    while not is_done():
        events = await group.pop()
        if not events:
            await asyncio.sleep(0.005)
        else:
            async with q.transaction() as transaction:
                transaction.ack(events)
                transaction.queue("out").push([{"data": event.data, "key": event.key} for event in events])


async def contents(q: Penstock, queue: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for key in KEYS:
        try:
            found[key] = [event.data for event in await q.queue(queue).fetch(key, 0, 100_000)]
        except NotFound:  # nothing has arrived yet
            found[key] = []
    return found


async def check_restored(url: str, results: Counter[str]) -> None:
    """Check that the events before the backup are stored, and that each gets one result, in order."""
    async with Penstock(url) as q:
        stored = await contents(q, "in")
        before = await contents(q, "out")
        for key in KEYS:
            assert stored[key] == list(range(len(stored[key])))
            assert len(stored[key]) >= results[key], "an event from before the backup is lost"
            assert before[key] == stored[key][: len(before[key])]
        lag = await q.queue("in").group("pipe").lag()
        assert lag == sum(len(stored[key]) - len(before[key]) for key in KEYS)
        # An id that was pushed after the backup is new here.
        more = [{"data": len(stored[key]), "key": key, "id": f"{key}-{len(stored[key])}"} for key in KEYS]
        assert not any(pushed.duplicate for pushed in await q.queue("in").push(more))
        done = asyncio.Event()

        async def watch() -> None:
            async with asyncio.timeout(90):
                while await q.queue("in").group("pipe").lag():  # noqa: ASYNC110 - it is in the database
                    await asyncio.sleep(0.02)
            done.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(watch())
            group.create_task(pipe(q, done.is_set))
        after = await contents(q, "out")
        assert after == {key: list(range(len(stored[key]) + 1)) for key in KEYS}


async def test_a_dump_taken_under_load_continues_exactly_after_a_restore(
    pg18: Server, database_url: str, empty_database_url: str, tmp_path: Path
) -> None:
    load = Load(database_url)
    async with load.running():
        await load.reaches(20)
        results = load.journal.copy()
        file = str(tmp_path / "backup")
        await asyncio.to_thread(run_program, "pg_dump", "--format=custom", f"--file={file}", database_url)
        # Later pushes are not in the backup.
        await load.reaches(max(load.journal.values()) + 5)
    await asyncio.to_thread(
        run_program, "pg_restore", "--no-owner", "--exit-on-error", f"--dbname={empty_database_url}", file
    )
    await check_restored(empty_database_url, results)


async def test_acks_of_leases_after_the_backup_are_refused_after_a_restore(
    database_url: str, empty_database_url: str, tmp_path: Path
) -> None:
    """The restored database does not know the lease, and delivers the event again."""
    file = str(tmp_path / "backup")
    async with Penstock(database_url) as q:
        await q.queue("in").create()
        await q.queue("in").push([{"data": n, "key": "ada"} for n in range(2)])
        (held,) = await q.queue("in").group("pipe").batch(1).pop()
        await asyncio.to_thread(run_program, "pg_dump", "--format=custom", f"--file={file}", database_url)
        assert await q.ack([held])
        (later,) = await q.queue("in").group("pipe").batch(1).pop()
    await asyncio.to_thread(
        run_program, "pg_restore", "--no-owner", "--exit-on-error", f"--dbname={empty_database_url}", file
    )
    async with Penstock(empty_database_url) as q:
        (refused,) = await q.ack([later])
        assert not refused.success
        # A lease from before the backup is valid, and so is its ack.
        assert (await q.ack([held]))[0].success
        (again,) = await q.queue("in").group("pipe").batch(1).pop()
        assert again.data == later.data


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["base backup", "copy of a stopped one"])
async def test_a_physical_backup_taken_under_load_continues_after_a_restore(how: str) -> None:
    root = reachable_directory()
    try:
        with EmbeddedPostgres(root / "here") as here:
            load = Load(here.url)
            async with load.running():
                await load.reaches(200)
                results = load.journal.copy()
                if how == "base backup":
                    await asyncio.to_thread(take_base_backup, here.url, root)
                    await load.reaches(max(load.journal.values()) + 100)
        if how != "base backup":
            results = load.journal.copy()
            shutil.copytree(root / "here", root / "there", ignore=shutil.ignore_patterns("run", "*.lock"))
            for path in (root / "here").rglob("*"):
                copy = root / "there" / path.relative_to(root / "here")
                if copy.exists():
                    shutil.chown(copy, path.stat().st_uid, path.stat().st_gid)
        with EmbeddedPostgres(root / "there") as there:
            await check_restored(there.url, results)
    finally:
        shutil.rmtree(root)
