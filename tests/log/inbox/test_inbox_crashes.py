"""Pushers, movers and PostgreSQL are killed at random: nothing is lost, nothing is stored twice, the order is kept."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest

from penstock.db.embedded import server as embedded
from penstock.db.embedded.server import EmbeddedPostgres, bundled_bin_dir
from tests.conditions import eventually_async
from tests.log.inbox import sql_pusher
from tests.log.logs import QUEUE, by_key, drain, opened

_ROOT = Path(__file__).parents[3]
_ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])}
_PUSHERS, _MOVERS, _KILLS = 4, 2, 12

_MOVER = """
import asyncio, sys
from tests.log.logs import opened

async def main():
    async with opened(sys.argv[1], retry_seconds=60):
        await asyncio.Event().wait()

asyncio.run(main())
"""
#: Committed by psql, which reads the statements from a pipe.
_PSQL = """
BEGIN;
UPDATE counters SET n = n + 1 WHERE key = 'c0';
SELECT penstock.push('orders', to_jsonb(n), key => 'c0') FROM counters WHERE key = 'c0';
{end};
"""


def start_pusher(url: str, number: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(_ROOT / "tests/log/inbox/sql_pusher.py"), url, str(number)]
    return subprocess.Popen(command, env=_ENVIRONMENT, stderr=subprocess.DEVNULL)


def start_mover(url: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", _MOVER, url], env=_ENVIRONMENT, stderr=subprocess.DEVNULL)


def run_psql(url: str, chance: random.Random) -> None:
    """Push some events with psql. It may be cut off."""
    script = "".join(_PSQL.format(end=chance.choice(["COMMIT", "COMMIT", "ROLLBACK"])) for _ in range(50))
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [str(bundled_bin_dir() / "psql"), "--quiet", "--no-psqlrc", url],
            input=script.encode(),
            timeout=chance.uniform(0.05, 0.5),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )


def kill_postgresql(directory: Path) -> None:
    pid = embedded.status(directory).pid
    assert pid is not None
    for victim in (pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))):
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)


async def pushed_events(url: str) -> int:
    def count() -> int:
        with suppress(psycopg.OperationalError), psycopg.connect(url, autocommit=True) as conn:
            ((events,),) = conn.execute("SELECT count(*) FROM free").fetchall()
            return int(events)
        return 0

    return await asyncio.to_thread(count)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_kills_lose_and_repeat_nothing(data_dir: Path) -> None:
    chance = random.Random(7)
    options = {"track_commit_timestamp": "on"}
    with EmbeddedPostgres(data_dir, options=options) as server:
        url = server.url
        async with opened(url) as log:
            await log.configure(QUEUE, {"max_depth_events": None}, partitioning="hash", partitions=3)
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(sql_pusher.SCHEMA.encode())
        pushers = [start_pusher(url, number) for number in range(_PUSHERS)]
        movers = [start_mover(url) for _ in range(_MOVERS)]
        try:
            for round_number in range(_KILLS):
                goal = await pushed_events(url) + 60
                await asyncio.to_thread(run_psql, url, chance)

                async def is_reached(goal: int = goal) -> bool:
                    return await pushed_events(url) >= goal

                await eventually_async(is_reached)
                kind = round_number % 4
                if kind == 3:
                    kill_postgresql(data_dir)
                    await asyncio.to_thread(server.start)
                elif kind == 2:
                    with suppress(psycopg.OperationalError), psycopg.connect(url, autocommit=True) as conn:
                        conn.execute(
                            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                            "AND backend_type = 'client backend' ORDER BY random() LIMIT 3"
                        )
                else:
                    group = (pushers, movers)[kind]
                    victim = chance.randrange(len(group))
                    group[victim].kill()
                    group[victim].wait()
                    group[victim] = start_pusher(url, 100 + round_number) if kind == 0 else start_mover(url)
        finally:
            for process in (*pushers, *movers):
                process.kill()
                process.wait()
        async with opened(url) as log:

            async def is_moved() -> bool:
                return not await log.inbox.has_rows()

            await eventually_async(is_moved)
            events = by_key(await drain(log))
        with psycopg.connect(url, autocommit=True) as conn:
            counters: dict[str, int] = dict(conn.execute("SELECT key, n FROM counters").fetchall())
            free = conn.execute("SELECT id::text, key, began, pg_xact_commit_timestamp(xid) FROM free").fetchall()
    for key, last in counters.items():
        assert events.pop(key, []) == list(range(1, last + 1)), key
    times = {id: (began, committed) for id, _, began, committed in free}
    assert len(times) >= _KILLS * 60
    for key in ("f0", "f1", "f2", "f3"):
        found = events.pop(key)
        assert len(found) == len(set(found))
        assert set(found) == {id for id, its, _, _ in free if its == key}
        # No event comes after one whose commit began when its own was complete.
        latest_began = None
        for id in found:
            began, committed = times[id]
            assert latest_began is None or committed >= latest_began, f"{id} of {key} comes too late"
            latest_began = began if latest_began is None else max(latest_began, began)
    assert events == {}
