"""Pops that wait for events."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import Any

import pytest

from penstock.log.log import Log
from tests.conditions import eventually_async
from tests.log.logs import PATIENCE, QUEUE, data, pop, push

#: A waiting pop polls every five seconds. A notification wakes it much sooner.
CALLED = 4.0


PUSHER = """
import asyncio, sys
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch

async def main() -> None:
    log = await Log(Database(Settings(database_url=sys.argv[1]))).open()
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        await log.push([Batch(sys.argv[2], [{"data": line.strip()}])])
        print("pushed", flush=True)
    await log.close()

asyncio.run(main())
"""


async def test_a_push_of_another_process_wakes_a_waiting_pop(log: Log, database_url: str) -> None:
    await log.configure(QUEUE)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PUSHER, database_url, QUEUE, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    for i in range(5):
        popped = asyncio.create_task(pop(log, wait_seconds=PATIENCE, auto_ack=True))
        await asyncio.sleep(0)
        process.stdin.write(b"%d\n" % i)
        assert await process.stdout.readline() == b"pushed\n"
        # A push of another process is visible to a pop that does not wait, and wakes one that does.
        async with asyncio.timeout(CALLED):
            assert data(await popped) == [str(i)]
    process.stdin.close()
    assert await process.wait() == 0


async def test_no_push_is_missed_between_read_and_wait(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    chance = random.Random(2)
    for i in range(150):
        popped = asyncio.create_task(pop(log, wait_seconds=PATIENCE, auto_ack=True))
        for _ in range(chance.randrange(30)):
            await asyncio.sleep(0)
        await push(other_log if i % 3 else log, [i])
        async with asyncio.timeout(CALLED):
            assert data(await popped) == [i]


async def test_a_waiting_pop_returns_nothing_at_its_timeout(log: Log) -> None:
    await log.configure(QUEUE)
    began = time.monotonic()
    assert await pop(log, wait_seconds=0.2) == []
    assert 0.2 <= time.monotonic() - began < CALLED


async def test_a_waiting_pop_returns_when_a_lease_expires(log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, [1])
    await pop(log, lease_seconds=0.3)
    async with asyncio.timeout(CALLED):
        assert data(await pop(log, wait_seconds=PATIENCE)) == [1]


async def test_pops_that_wait_together_share_their_statements(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    await log.configure(QUEUE)
    await push(log, [1])
    (event,) = await pop(log)
    connections = 0
    connection = log.database.pool.connection

    def counted(*args: Any) -> Any:
        nonlocal connections
        connections += 1
        return connection(*args)

    monkeypatch.setattr(log.database.pool, "connection", counted)
    pops = [asyncio.create_task(pop(log, wait_seconds=PATIENCE)) for _ in range(50)]
    await eventually_async(lambda: _are_waiting(log, 50))
    # Each pop leases and asks for the next time to try, which is two statements for all of them together.
    assert connections <= 10
    await log.ack([event], "retry")
    done, rest = await asyncio.wait(pops, return_when=asyncio.FIRST_COMPLETED)
    assert [data(task.result()) for task in done] == [[1]]
    for task in rest:
        task.cancel()
    await asyncio.wait(rest)


async def _are_waiting(log: Log, most: int) -> bool:
    queue = await log.catalog.get(QUEUE)
    return log.notifier.waiting(queue.id) >= most


async def test_a_waiting_pop_returns_when_a_lease_is_released(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE, {"retry_delay_ms": 0})
    await push(log, [1, 2])
    events = await pop(log, batch=1)
    waiter = asyncio.create_task(pop(other_log, wait_seconds=PATIENCE))
    await asyncio.sleep(0)
    await log.ack(events)
    async with asyncio.timeout(CALLED):
        assert data(await waiter) == [2]
