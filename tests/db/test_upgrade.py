"""A database that an earlier release left behind: upgraded by whoever comes first, while others push and pop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.core.clock import Clock
from penstock.db import migrate
from penstock.log.dead_letters import Filter
from penstock.log.event import Event
from penstock.log.log import Log
from tests.log.logs import by_key, drain, held, letters, opened, push
from tests.servers import Server

DUMPS = sorted((Path(__file__).parent / "upgrades").glob("*.sql"))

#: What each key of the queue by key holds, in order: the first three parts, and for one of them a fourth.
JOBS = {
    key: [{"part": part, "i": i} for part in range(parts) for i in range(5)] for key, parts in (("ada", 4), ("bob", 3))
}


@pytest.fixture(params=DUMPS, ids=lambda dump: dump.stem)
def left_behind(request: pytest.FixtureRequest, pg18: Server) -> Iterator[str]:
    with pg18.fresh_database("template0") as url:
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(request.param.read_bytes(), prepare=False)
        yield url


async def work(url: str, name: str) -> list[Event]:
    """Open, upgrade if nobody has yet, push and pop."""
    async with opened(url) as log:
        for n in range(5):
            await push(log, [{"by": name, "n": n}], queue="clicks", key=name)
            await push(log, [{"by": name, "n": n}], queue="jobs", key=name, ids=[f"{name}-{n}"])
        return await drain(log, "jobs", group="mail", batch=3, partitions=2)


async def everything(log: Log, queue: str, group: str) -> list[Event]:
    return await drain(log, queue, group=group)


async def test_nothing_is_lost_or_doubled_by_an_upgrade_under_load(left_behind: str) -> None:
    names = [f"worker {i}" for i in range(4)]
    # A push of the release before is under way.
    push_of_old = "SELECT id FROM penstock.partitions ORDER BY id FOR NO KEY UPDATE"
    async with asyncio.TaskGroup() as group, held(left_behind, push_of_old):
        working = [group.create_task(work(left_behind, name)) for name in names]
        await asyncio.sleep(0)
    async with opened(left_behind) as log:
        async with log.database.connection() as conn:
            await migrate.verify(conn)
        popped = [event for task in working for event in task.result()] + await everything(log, "jobs", "mail")
        mail = by_key(sorted(popped, key=lambda event: event.offset))
        # The group goes on where it was: four and two events in, and one of those was sent back before the last part.
        assert mail.pop("ada") == [*JOBS["ada"][4:15], JOBS["ada"][3], *JOBS["ada"][15:]]
        assert mail.pop("bob") == JOBS["bob"][2:]
        pushed = {name: [{"by": name, "n": n} for n in range(5)] for name in names}
        assert mail == pushed
        # A new one sees all that was ever pushed.
        assert by_key(await everything(log, "jobs", "new")) == {**JOBS, **pushed}
        clicks = by_key(await everything(log, "clicks", "sums"))
        assert {name: clicks.pop(name) for name in names} == pushed
        assert sorted(each["n"] for some in clicks.values() for each in some) == list(range(50))
        assert all(some == sorted(some, key=lambda each: each["n"]) for some in clicks.values())
        dead = await letters(log, "jobs")
        assert [(letter.key, letter.data, letter.error) for letter in dead] == [
            ("bob", JOBS["bob"][0], "sent back"),
            ("bob", JOBS["bob"][1], "sent back"),
        ]
        assert (await log.redrive(Filter(queue="jobs"))).replayed == 2
        assert by_key(await everything(log, "jobs", "mail")) == {"bob": JOBS["bob"][:2]}


async def test_the_ids_of_the_release_before_are_remembered(left_behind: str) -> None:
    soon_after = datetime(2025, 11, 15, 19, 12, tzinfo=UTC)
    async with opened(left_behind, clock=Clock(soon_after - datetime.now(UTC))) as log:
        (again,) = await push(log, [{}], queue="jobs", key="ada", ids=["ada-3-0"])
        assert again.duplicate
        (new,) = await push(log, [{}], queue="jobs", key="ada", ids=["ada-4-0"])
        assert (new.duplicate, new.offset) == (False, 21)


def test_the_oldest_dump_is_of_the_first_release() -> None:
    known: list[Any] = [f"{migration.version:04}" for migration in migrate.load_migrations()]
    assert DUMPS
    assert DUMPS[0].stem == "0003"
    assert all(dump.stem in known for dump in DUMPS)
