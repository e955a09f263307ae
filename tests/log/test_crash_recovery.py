"""Crashes and lost connections: acknowledged operations are stored once, and clients recover."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg import sql

from penstock.core.clock import Clock
from penstock.core.errors import DatabaseUnavailable
from penstock.db.embedded import server as embedded
from penstock.db.embedded.server import EmbeddedPostgres
from penstock.log.dead_letters.dead_letter import DeadLetterFilter
from penstock.log.log import Log
from penstock.log.read.ack import EventStatus
from penstock.log.write.encode.batch import Batch
from penstock.log.write.push_result import PushResult
from tests.conditions import eventually_async
from tests.log.logs import CACHED_AND_UNCACHED, GROUP, QUEUE, ask, by_key, data, drain, lag, opened, pop, push
from tests.log.lossy_proxy import Proxy, each_answer, proxied

pytestmark = pytest.mark.slow


class Load:
    """Producers and consumers that run until they are stopped, and fail if a call fails."""

    def __init__(self, log: Log, *, producers: int = 4, consumers: int = 2) -> None:
        self._log = log
        self._stop = asyncio.Event()
        self.pushed: dict[str, list[int]] = {f"producer {i}": [] for i in range(producers)}
        self.got: dict[str | None, list[int]] = {}
        self._tasks = [asyncio.create_task(self._produce(name)) for name in self.pushed]
        self._tasks += [asyncio.create_task(self._consume()) for _ in range(consumers)]

    async def _produce(self, name: str) -> None:
        number = 0
        while not self._stop.is_set():
            await push(self._log, [number], key=name)
            self.pushed[name].append(number)
            number += 1

    async def _consume(self) -> None:
        while not self._stop.is_set():
            events = await pop(self._log, batch=20, partitions=2, wait_seconds=0.2)
            results = await self._log.ack(events)
            for event, result in zip(events, results, strict=True):
                if result and not result.noop:
                    self.got.setdefault(event.key, []).append(event.data)

    async def progress(self, more: int = 30) -> None:
        """Wait until so many more events were pushed, or a call has failed."""
        goal = self.count() + more
        while self.count() < goal:
            done, _ = await asyncio.wait(self._tasks, timeout=0.02, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()

    def count(self) -> int:
        return sum(map(len, self.pushed.values()))

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def check(self) -> None:
        """Check that acknowledged pushes are stored once and in order, and are consumed."""
        for name, numbers in self.pushed.items():
            stored = data(await self._log.fetch(QUEUE, name, 0, 100_000))
            assert stored == numbers, f"{name}: acknowledged and stored differ"
        rest = by_key(await drain(self._log))
        for name, numbers in self.pushed.items():
            completed = self.got.get(name, []) + rest.get(name, [])
            # An ack with a lost response may have been applied. Its events are then in neither list.
            assert completed == sorted(completed)
            assert set(completed) <= set(numbers)
        assert await lag(self._log) == 0


@pytest.mark.slow
async def test_a_killed_postgresql_loses_no_acknowledged_push(data_dir: Path) -> None:
    chance = random.Random(4)
    with EmbeddedPostgres(data_dir) as server:
        async with opened(server.url, retry_seconds=60) as log:
            await log.configure(QUEUE, {"lease_seconds": 2})
            load = Load(log)
            for _ in range(3):
                await load.progress(more=chance.randint(20, 60))
                pid = embedded.status(data_dir).pid
                assert pid is not None
                children = psutil.Process(pid).children(recursive=True)
                for victim in (pid, *(child.pid for child in children)):
                    with suppress(ProcessLookupError):
                        os.kill(victim, signal.SIGKILL)
                await asyncio.to_thread(server.start)
            await load.progress()
            await load.stop()
            # Leases need not survive a crash: wait until they expire.
            log.clock.advance(10)
            await load.check()


@pytest.mark.slow
async def test_terminated_connections_lose_nothing(database_url: str, clock: Clock) -> None:
    cut = (
        "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 2) victims"
    )
    async with opened(database_url, clock=clock) as log:
        await log.configure(QUEUE, {"lease_seconds": 60})
        load = Load(log, producers=6)
        for _ in range(15):
            await load.progress(more=15)
            await asyncio.to_thread(ask, database_url, cut)
        await load.progress()
        await load.stop()
        clock.advance(61)
        await load.check()


async def test_calls_without_a_database_fail_in_time(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir, options={"fsync": "off"}) as server:
        async with opened(server.url, retry_seconds=1) as log:
            await log.configure(QUEUE)
            await push(log, [1])
            (event,) = await pop(log)
            await asyncio.to_thread(server.stop)
            attempts: dict[str, Coroutine[Any, Any, object]] = {
                "push": push(log, [2]),
                "pop": pop(log),
                "ack": log.ack([event]),
                "nack": log.ack([event], False),
                "transact": log.transact([EventStatus(event, True)], [Batch(QUEUE, [{"data": 3}])]),
                "describe": log.describe(QUEUE),
            }
            outcomes = await asyncio.gather(
                *(asyncio.wait_for(attempt, 10) for attempt in attempts.values()), return_exceptions=True
            )
            assert {name: type(outcome) for name, outcome in zip(attempts, outcomes, strict=True)} == dict.fromkeys(
                attempts, DatabaseUnavailable
            )
            await asyncio.to_thread(server.start)

            async def is_back() -> object:
                with suppress(DatabaseUnavailable):
                    return (await push(log, [2]))[0].offset == 1
                return False

            await eventually_async(is_back)


# Killed clients

PRODUCER = """
import asyncio, sys
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch

async def main() -> None:
    log = await Log(Database(Settings(database_url=sys.argv[1]))).open()
    for number in range(10**6):
        await log.push([
            Batch(queue, [{"data": number, "key": f"key {i % 7}"} for i in range(50)]) for queue in ("first", "second")
        ])
        print(number, flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
async def test_a_killed_client_leaves_complete_requests_or_nothing(log: Log, database_url: str) -> None:
    for queue in ("first", "second"):
        await log.configure(queue)
    busy = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%append_%' "
        "AND state <> 'idle' AND pid <> pg_backend_pid()"
    )

    async def is_over() -> object:
        return not await asyncio.to_thread(ask, database_url, busy)

    chance = random.Random(5)
    for _ in range(3):
        for queue in ("first", "second"):
            await drain(log, queue)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PRODUCER, database_url, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        for _ in range(chance.randint(3, 15)):
            last = int(await process.stdout.readline())
        await asyncio.sleep(chance.random() * 0.01)
        process.kill()
        await process.wait()
        while line := await process.stdout.readline():
            last = int(line)
        # The server may still run the last statement.
        await eventually_async(is_over)
        found = [Counter(data(await drain(log, queue))) for queue in ("first", "second")]
        assert found[0] == found[1]
        assert set(found[0].values()) == {50}
        assert list(found[0]) == list(range(len(found[0])))
        assert len(found[0]) in (last + 1, last + 2)


# Lost responses


@pytest.fixture
async def proxy_and_url(database_url: str, data_dir: Path) -> AsyncIterator[tuple[Proxy, str]]:
    async with proxied(database_url, data_dir) as there:
        yield there


@pytest.fixture
def proxy(proxy_and_url: tuple[Proxy, str]) -> Proxy:
    return proxy_and_url[0]


@pytest.fixture
async def losing_log(proxy_and_url: tuple[Proxy, str], clock: Clock, cache_seconds: float) -> AsyncIterator[Log]:
    """A log with one connection, which the proxy cuts."""
    async with opened(proxy_and_url[1], clock=clock, pool_size=1, cache_seconds=cache_seconds) as log:
        yield log


def answers(result: PushResult) -> list[tuple[str, int, bool]]:
    return [(pushed.partition, pushed.offset, pushed.duplicate) for pushed in result]


@CACHED_AND_UNCACHED
async def test_a_push_with_a_lost_response_is_stored_once(proxy: Proxy, losing_log: Log, log: Log) -> None:
    await log.configure(QUEUE)
    await push(losing_log, ["first"], key="ada")

    async def attempt(i: int) -> None:
        offset = len(await log.fetch(QUEUE, "ada"))
        (result,) = await losing_log.push([Batch(QUEUE, [{"data": (i, n), "key": "ada"} for n in range(3)])])
        assert answers(result) == [("ada", offset + n, False) for n in range(3)]
        assert len(await log.fetch(QUEUE, "ada")) == offset + 3

    await each_answer(proxy, attempt)


async def test_a_delayed_push_is_not_stored_after_its_retry(
    proxy: Proxy, losing_log: Log, log: Log, database_url: str
) -> None:
    await log.configure(QUEUE)
    await push(losing_log, ["first"], key="ada")
    proxy.stray(b'"second"')
    async with asyncio.timeout(10):
        result = await push(losing_log, ["second"], key="ada")
    assert proxy.strayed.is_set()
    assert answers(result) == [("ada", 1, False)]
    proxy.arrive()
    # Its backend has ended, so the delayed message is lost.
    await push(log, ["third"], key="ada")
    idle = (
        "SELECT count(*) = 0 FROM pg_stat_activity "
        "WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()"
    )

    async def nobody_works() -> object:
        return await asyncio.to_thread(ask, database_url, idle)

    await eventually_async(nobody_works)
    assert data(await log.fetch(QUEUE, "ada")) == ["first", "second", "third"]


async def test_a_delayed_pop_leases_nothing_after_its_retry(proxy: Proxy, losing_log: Log, log: Log) -> None:
    await log.configure(QUEUE)
    for key in ("ada", "bob", "cy"):
        await push(log, [key], key=key)
    (first,) = await pop(losing_log, batch=1, partitions=1)
    await log.ack([first])
    proxy.stray()
    async with asyncio.timeout(10):
        (second,) = await pop(losing_log, batch=1, partitions=1)
    assert proxy.strayed.is_set()
    proxy.arrive()
    (third,) = await pop(log)
    assert {event.key for event in (first, second, third)} == {"ada", "bob", "cy"}


async def test_a_flush_with_an_unknown_result_is_not_repeated_push_by_push(
    proxy: Proxy, losing_log: Log, log: Log, database_url: str
) -> None:
    await log.configure(QUEUE)
    await push(losing_log, ["warm-up"])
    # New connections are read-only, as to a server that has become a standby.
    read_only = "ALTER DATABASE {} SET default_transaction_read_only = on"
    with psycopg.connect(database_url, autocommit=True) as direct:
        direct.execute(sql.SQL(read_only).format(sql.Identifier(direct.info.dbname)))
    proxy.lose_answer_to(b'"marker"')
    results = await asyncio.gather(
        *(push(losing_log, [value]) for value in ("first", "marker", "last")), return_exceptions=True
    )
    assert {type(result) for result in results} == {DatabaseUnavailable}
    assert (await log.describe(QUEUE)).size.appended == 4


@CACHED_AND_UNCACHED
async def test_a_retried_flush_recognises_its_own_events(proxy: Proxy, losing_log: Log, log: Log) -> None:
    await log.configure(QUEUE)
    for key in ("ada", "bob"):
        await push(losing_log, [0, 1], key=key, ids=["zero", "one"])

    async def attempt(i: int) -> None:
        offset = len(await log.fetch(QUEUE, "ada"))
        asked = [("ada", f"new {i}"), ("ada", "one"), ("ada", f"newer {i}"), ("bob", "zero"), ("bob", "one")]
        (result,) = await losing_log.push([Batch(QUEUE, [{"data": i, "key": key, "id": id} for key, id in asked])])
        stored = await log.fetch(QUEUE, "ada")
        assert len(stored) == offset + 2
        assert len(await log.fetch(QUEUE, "bob")) == 2
        # The result does not tell which attempt has stored the events.
        assert [(pushed.partition, pushed.offset) for pushed in result] == [
            ("ada", offset),
            ("ada", 1),
            ("ada", offset + 1),
            ("bob", 0),
            ("bob", 1),
        ]
        assert [stored[pushed.offset].given_id for pushed in result[:3]] == [id for _, id in asked[:3]]

    await each_answer(proxy, attempt)


@CACHED_AND_UNCACHED
async def test_a_push_with_a_key_and_a_lost_response_is_answered(proxy: Proxy, losing_log: Log, log: Log) -> None:
    for queue in (QUEUE, "second"):
        await log.configure(queue)
        await push(losing_log, ["first"], key="ada", queue=queue)

    async def attempt(i: int) -> None:
        offset = len(await log.fetch(QUEUE, "ada"))
        batches = [Batch(queue, [{"data": i}], key="ada") for queue in (QUEUE, "second")]
        for _ in range(2):
            results = await losing_log.push(batches, idempotency_key=f"request {i}")
            assert [answers(result) for result in results] == [[("ada", offset, False)]] * 2
        for queue in (QUEUE, "second"):
            assert len(await log.fetch(queue, "ada")) == offset + 1

    await each_answer(proxy, attempt)


@CACHED_AND_UNCACHED
async def test_a_pop_with_a_lost_response_delivers_its_events(
    proxy: Proxy, losing_log: Log, log: Log, clock: Clock
) -> None:
    await log.configure(QUEUE)
    await push(log, ["first"], key="ada")
    await drain(losing_log)

    async def attempt(i: int) -> None:
        await push(log, [i, i], key="ada")
        assert data(await pop(losing_log)) == [i, i]
        proxy.stop_losing()
        clock.advance(1000)
        assert data(await drain(log)) == [i, i]

    await each_answer(proxy, attempt)


@pytest.mark.parametrize("status", ["completed", "failed", "retry", "dead_letter"])
@CACHED_AND_UNCACHED
async def test_an_ack_with_a_lost_response_is_applied_once(
    proxy: Proxy, losing_log: Log, log: Log, status: str
) -> None:
    await log.configure(QUEUE, {"retry_limit": 1000, "retry_delay_ms": 0})

    async def attempt(i: int) -> None:
        await push(log, [i], key="ada")
        (event,) = await pop(log)
        await losing_log.ack([event], status)
        proxy.stop_losing()
        left = await pop(log)
        assert len(left) == (status in ("failed", "retry"))
        if left:
            assert left[0].attempts == (status == "failed")
            await log.ack(left)
        assert await log.count_dead_letters(DeadLetterFilter(queue=QUEUE)) == (i if status == "dead_letter" else 0)

    await each_answer(proxy, attempt)


@CACHED_AND_UNCACHED
async def test_a_transaction_with_a_lost_response_is_atomic(
    proxy: Proxy, losing_log: Log, log: Log, clock: Clock, database_url: str
) -> None:
    await log.configure(QUEUE, {"lease_seconds": 60})
    await log.configure("out")
    idle = (
        "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() "
        "AND state IN ('active', 'idle in transaction') AND pid <> pg_backend_pid()"
    )

    async def nobody_is_in_a_transaction() -> object:
        return await asyncio.to_thread(ask, database_url, idle)

    async def attempt(i: int) -> None:
        await push(log, [i], key="ada")
        events = await pop(log)
        with suppress(DatabaseUnavailable):
            await losing_log.transact(
                [EventStatus(event, True) for event in events], [Batch("out", [{"data": i}], key="k")]
            )
        proxy.stop_losing()
        # The server may not have noticed the lost client yet, and still hold the locks.
        await eventually_async(nobody_is_in_a_transaction)
        clock.advance(61)
        acked = data(await drain(log)) == []
        assert data(await drain(log, "out")) == ([i] if acked else [])

    await each_answer(proxy, attempt)


CALLS: dict[str, Callable[[Log], Awaitable[object]]] = {
    "configure": lambda log: log.configure(QUEUE, {"retry_limit": 1}),
    "queues": lambda log: log.queues(),
    "describe": lambda log: log.describe(QUEUE),
    "groups": lambda log: log.groups(),
    "positions": lambda log: log.group_positions(QUEUE, GROUP),
    "subscribe": lambda log: log.subscribe(QUEUE, "another"),
    "seek": lambda log: log.seek(QUEUE, GROUP, "beginning"),
    "fetch": lambda log: log.fetch(QUEUE, "ada"),
    "browse": lambda log: log.browse(QUEUE),
    "dead letters": lambda log: log.dead_letters(DeadLetterFilter(queue=QUEUE)),
    "redrive": lambda log: log.redrive(DeadLetterFilter(queue=QUEUE)),
    "purge": lambda log: log.purge(DeadLetterFilter(queue=QUEUE, key="nobody")),
    "repartition": lambda log: log.repartition(QUEUE, "key"),
    "delete a group": lambda log: log.delete_group(QUEUE, "nobody"),
    "delete a queue": lambda log: log.delete_queue("nowhere"),
}


@pytest.mark.parametrize("call", CALLS)
async def test_a_lost_connection_is_retried_or_raises_a_penstock_error(
    proxy: Proxy, losing_log: Log, log: Log, call: str
) -> None:
    await log.configure(QUEUE)
    await push(log, [1], key="ada")
    await log.ack(await pop(log), "dead_letter")
    await losing_log.describe(QUEUE)

    async def attempt(i: int) -> None:
        with suppress(DatabaseUnavailable):
            await CALLS[call](losing_log)

    await each_answer(proxy, attempt)


async def test_a_terminated_listener_reconnects(database_url: str) -> None:
    cut = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid() AND query = 'LISTEN penstock'"
    )

    async def is_cut() -> object:
        return await asyncio.to_thread(ask, database_url, cut)

    async with opened(database_url) as log, opened(database_url) as other_log:
        await log.configure(QUEUE)
        for i in range(4):
            popped = asyncio.create_task(pop(log, wait_seconds=20, auto_ack=True))
            if i:
                await eventually_async(is_cut)
            await push(other_log, [i])
            async with asyncio.timeout(7):
                assert data(await popped) == [i]


def test_the_server_has_fsync_on(data_dir: Path) -> None:
    """These tests rely on it."""
    with EmbeddedPostgres(data_dir) as server, psycopg.connect(server.url) as conn:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert conn.execute("SELECT current_setting(%s)", [setting]).fetchone() == ("on",)
