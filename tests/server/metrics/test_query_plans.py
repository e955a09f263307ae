"""Plans of the statements for metrics and live streams."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from penstock.db.pool import SESSION
from penstock.db.statements import Statements
from penstock.log.log import Log
from penstock.log.read.pop_request import PopRequest
from penstock.log.write.encode.batch import Batch
from tests.cycle_driver import CycleDriver
from tests.log.query_plans import Explained, explain

_sql = Statements("penstock.server.metrics", "database_metrics.sql")
_live = Statements("penstock.server.live", "query_results.sql")

#: Cycles per query that a scrape reads at most.
CYCLES_READ = 200


async def explained(url: str, statement: str, **params: Any) -> Explained:
    async with await AsyncConnection.connect(url, autocommit=True) as conn:
        await conn.execute(SESSION)
        return await explain(conn, statement, {"limit": 2000, **params})


async def test_scrape_cost_does_not_grow_with_history(log: Log, shared_url: str) -> None:
    await log.configure("scraped.orders", {"retry_limit": 0}, partitioning="hash", partitions=4)
    driver = await CycleDriver.start(log, "scraped")
    for _ in range(CYCLES_READ):
        await driver.cycle([("ada", 0, 1, 1)])
    pages: list[dict[str, int]] = []
    for _ in range(2):
        for _ in range(20):
            await log.push([Batch("scraped.orders", [{"data": n, "key": str(n)} for n in range(50)])])
            await log.ack(await log.pop(PopRequest("scraped.orders", "billing", batch=1000, partitions=4)))
            await driver.cycle([("ada", 0, 1, 1)])
        plans = {name: await explained(shared_url, _sql[name]) for name in ("queues", "groups", "queries")}
        pages.append({name: each.pages for name, each in plans.items()})
        for each in plans.values():
            for table in ("cycles", "positions", "chunks"):
                assert all("Index" in scan.kind for scan in each.scans(table))
    await driver.close()
    for name, before in pages[0].items():
        assert pages[1][name] <= before * 1.5 + 20, (name, pages)


async def test_dead_letters_are_counted_with_an_index_only_scan(log: Log, shared_url: str) -> None:
    await log.configure("failing", {"retry_limit": 0})
    await log.push([Batch("failing", [{"data": n} for n in range(20)])])
    await log.ack(await log.pop(PopRequest("failing", "billing", batch=100)), "dead_letter", error="x")
    plan = await explained(shared_url, _sql["dead_letters"])
    assert {scan.index for scan in plan.scans("dead_letters")} == {"dead_letters_waiting_group"}
    assert plan.scans("dead_letters")[0].kind == "Index Only Scan"


async def test_oldest_unread_event_is_found_in_any_segment(log: Log, shared_url: str) -> None:
    await log.configure("aged", partitioning="hash", partitions=2)
    await log.push([Batch("aged", [{"data": n, "key": str(n)} for n in range(10)])])
    await log.subscribe("aged", "slow")
    queue = await log.catalog.get("aged")
    question = (
        "SELECT penstock.oldest_unread(g.id, q.id, q.segment) FROM penstock.groups g "
        "JOIN penstock.queues q ON q.id = g.queue_id WHERE q.name = 'aged'"
    )
    first = min([(await log.fetch("aged", partition, 0, 1))[0].appended_at for partition in ("0", "1")])

    async def oldest() -> Any:
        async with log.database.connection() as conn:
            row = await (await conn.execute(question)).fetchone()
        assert row is not None
        return row[0]

    assert await oldest() == first
    await log.segments.roll(queue)
    await log.push([Batch("aged", [{"data": 11}])])
    assert await oldest() == first
    while events := await log.pop(PopRequest("aged", "slow", batch=100, partitions=2)):
        await log.ack(events)
    assert await oldest() is None


async def test_changes_of_a_cycle_are_read_in_one_scan(log: Log, shared_url: str) -> None:
    driver = await CycleDriver.start(log, "changed_rows")
    await driver.cycle([(str(n), 0, 1, 1) for n in range(2000)])
    async with log.database.connection() as conn:
        statement = "SELECT max(committed_at) FROM penstock.cycles WHERE query_id = %s"
        (row,) = await (await conn.execute(statement, (driver.id,))).fetchall()
    statement = _live["changed"].replace("{view}", "changed_rows")
    async with await AsyncConnection.connect(shared_url, autocommit=True) as conn:
        plan = await explain(conn, statement, {"since": row[0], "keys": None, "limit": 10})
    assert len(plan.scans(f"state_{driver.id}")) == 1
    await driver.close()
