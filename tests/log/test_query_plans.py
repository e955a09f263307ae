"""The cost of hot statements does not depend on the amount of history.

The plans are generic ones, with statistics and on new tables that were never analyzed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import AsyncConnection, sql

from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.db.statements import Statements
from penstock.log.log import Log
from penstock.log.queue import Queue
from penstock.log.read.lease import lease_statement
from penstock.log.storage import chunk
from tests.log.logs import GROUP, QUEUE, held, opened, pop, push
from tests.log.query_plans import Explained, explain, explain_call, explain_inside

PARTITIONS = ("ada", "bob", "cyd")
#: The most rows that a hot statement may read.
FEW = 60

FILES = {
    "next_available": "read/lease.sql",
    "leased_partitions": "read/lease.sql",
    "complete": "read/ack.sql",
    "lock_cursors": "read/position_store.sql",
    "lock_positions": "read/position_store.sql",
    "write_positions": "read/position_store.sql",
    "chunks_between": "storage/chunk_reader.sql",
    "first_chunks_between": "storage/chunk_reader.sql",
    "sealed_segment": "storage/chunk_reader.sql",
    "lock_partitions": "write/append.sql",
    "stored_ids": "write/append.sql",
    "still_in_window": "write/append.sql",
    "publish": "write/upload.sql",
    "discard": "write/upload.sql",
    "wake_cursors": "write/upload.sql",
}

GROW = """
INSERT INTO {0}
SELECT (copy).* FROM (
    SELECT jsonb_populate_record(last, jsonb_build_object('end_offset', last.end_offset + n)) AS copy
    FROM {0} AS last
    JOIN (SELECT partition_id, max(end_offset) AS end_offset FROM {0} GROUP BY partition_id) heads
        ON heads.partition_id = last.partition_id AND heads.end_offset = last.end_offset
    CROSS JOIN generate_series(1, %s) AS n
) copies
"""

GROW_IDS = """
INSERT INTO {0}
SELECT (copy).* FROM (
    SELECT jsonb_populate_record(one, jsonb_build_object('hash', gen_random_uuid())) AS copy
    FROM {0} AS one CROSS JOIN generate_series(1, %s) AS n
    WHERE one.ctid = (SELECT ctid FROM {0} LIMIT 1)
) copies
"""

CROWD = """
WITH others AS (
    INSERT INTO penstock.groups (queue_id, name, epoch, subscribed_from)
    SELECT %(queue)s, 'other ' || n, 0, 'beginning' FROM generate_series(1, %(groups)s) AS n
    RETURNING id
), created AS (
    INSERT INTO penstock.partitions (queue_id, epoch, name)
    SELECT %(queue)s, 0, 'idle ' || n FROM generate_series(1, %(partitions)s) AS n
    RETURNING id
), pointed AS (
    INSERT INTO penstock.cursors (group_id, partition_id, state)
    SELECT g.id, l.id, g.state FROM (SELECT id, 0 AS state FROM others UNION ALL SELECT %(group)s, 1) g, created l
    RETURNING group_id, partition_id
)
INSERT INTO penstock.positions (group_id, partition_id, version, next_offset, lease_end, available_at)
SELECT group_id, partition_id, 7, 0, 0, 'epoch' FROM pointed
"""


def statements(file: str) -> Statements:
    """Return the statements of a file of the log, such as ``read/lease.sql``."""
    package, _, name = file.partition("/")
    return Statements(f"penstock.log.{package}", name)


class Bench:
    """A queue with history, and a connection."""

    def __init__(self, log: Log, url: str, queue: Queue, conn: AsyncConnection[Any]) -> None:
        self.log = log
        self.url = url
        self.queue = queue
        self.conn = conn
        self.lease = uuid4()
        self.body = chunk.encode(chunk.ChunkColumns(b'{"n": 1}', 1))
        with psycopg.connect(url, autocommit=True) as direct:
            partitions = direct.execute(
                "SELECT id FROM penstock.partitions WHERE name = ANY(%s) ORDER BY id", [list(PARTITIONS)]
            )
            self.partitions = [partition for (partition,) in partitions]
            self.group = direct.execute("SELECT id FROM penstock.groups WHERE name = %s", [GROUP]).fetchall()[0][0]

    def grow(self, chunks: int) -> None:
        """Append copies of its last chunk to each partition, with an id for each."""
        table, ids = (
            sql.Identifier("penstock", f"{kind}_{self.queue.id}_{self.queue.segment}") for kind in ("chunks", "ids")
        )
        with psycopg.connect(self.url, autocommit=True) as direct:
            direct.execute(sql.SQL(GROW).format(table), (chunks,))
            direct.execute(sql.SQL(GROW_IDS).format(ids), (chunks,))

    def crowd(self, groups: int, partitions: int) -> None:
        """Add partitions and groups that the tested group does not use."""
        with psycopg.connect(self.url, autocommit=True) as direct:
            direct.execute(
                CROWD, {"queue": self.queue.id, "group": self.group, "groups": groups, "partitions": partitions}
            )

    def analyze(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as direct:
            direct.execute("ANALYZE")

    def statement(self, name: str) -> str:
        return statements(FILES[name]).table(name, self.queue.id, self.queue.segment)

    def params(self) -> dict[str, Any]:
        """Return a value for every parameter of every statement."""
        partitions = "{" + ",".join(map(str, self.partitions)) + "}"
        groups = "{" + ",".join([str(self.group)] * len(self.partitions)) + "}"
        ones = "{" + ",".join(["1"] * len(self.partitions)) + "}"
        return {
            "skew": timedelta(0),
            "queue": self.queue.id,
            "segment": self.queue.segment,
            "epoch": self.queue.epoch,
            "group": self.group,
            "groups": groups,
            "after": 0,
            "upto": 2**62,
            "partitions": partitions,
            "partition": self.partitions[0],
            "offset": 1,
            "offsets": ones,
            "batch": 10,
            "lease": self.lease,
            "leases": "{" + ",".join([str(self.lease)] * len(self.partitions)) + "}",
            "lease_seconds": 60.0,
            "seconds": 60.0,
            "starts": ones,
            "ends": "{" + ",".join(["9"] * len(self.partitions)) + "}",
            "max_bytes": 64,
            "longest": chunk.MAX_EVENTS,
            "hashes": "{" + ",".join(str(UUID(int=n)) for n in range(5)) + "}",
            "window": 3600.0,
            "flush": uuid4(),
            "upload": 1,
            "numbers": ones,
            "targets": partitions,
            "afters": ones,
            "versions": "{" + ",".join(["10"] * len(self.partitions)) + "}",
            "nexts": ones,
            "availables": "{" + ",".join(["now"] * len(self.partitions)) + "}",
            "attempts": ones,
            "expiries": ones,
            "suspects": ones,
            "redelivered": ones,
            "skipped": "{" + ",".join(['"{}"'] * len(self.partitions)) + "}",
            "failures": "{" + ",".join(['"{}"'] * len(self.partitions)) + "}",
        }

    async def explain(self, name: str, **params: Any) -> Explained:
        return await explain(self.conn, self.statement(name), self.params() | params)

    async def explain_lease(self, *, quiet: bool = False) -> Explained:
        params = self.params() | {
            "partitions": len(self.partitions),
            "leases": "{" + str(self.lease) + "}",
            "quiet": 0.001,
        }
        statement = lease_statement(self.queue.id, self.queue.segment, when_quiet=quiet)
        return await explain(self.conn, statement, params)

    async def explain_by_id(self, name: str) -> Explained:
        statement = Statements("penstock.server.queen.delivery", "event_lookup.sql").table(
            name, self.queue.id, self.queue.segment
        )
        return await explain(self.conn, statement, self.params())

    async def explain_complete(self) -> Explained:
        """Lease and complete events, and roll back."""
        leased = lease_statement(self.queue.id, self.queue.segment, when_quiet=False)
        async with self.conn.transaction(force_rollback=True):
            params = self.params() | {"partitions": len(self.partitions), "leases": "{" + str(self.lease) + "}"}
            await self.conn.execute(leased.encode(), params)
            ends = "{" + ",".join(["1"] * len(self.partitions)) + "}"
            return await explain(self.conn, self.statement("complete"), self.params() | {"upto": ends})

    @property
    def append(self) -> str:
        return f"append_{self.queue.id}_{self.queue.segment}"

    def append_values(self) -> dict[str, Any]:
        """Return a value for every argument and variable of the append function."""
        count, size = len(self.partitions), len(self.body)
        return {
            "_partitions": self.partitions,
            "_counts": [1] * count,
            "_after": [1] * count,
            "_starts": [1 + size * i for i in range(count)],
            "_sizes": [size] * count,
            "_bodies": self.body * count,
            "_skew": timedelta(0),
            "_flush": uuid4(),
            "_epoch": self.queue.epoch,
            "_targets": [],
            "_hashes": [UUID(int=n) for n in range(count)],
            "_hash_partitions": self.partitions,
            "_slots": list(range(1, count + 1)),
            "_places": [0] * count,
            "_heads": [1] * count,
            "_id_segments": [self.queue.segment],
            "_at": None,
        }


@asynccontextmanager
async def open_bench(url: str) -> AsyncIterator[Bench]:
    settings = Settings(database_url=url, pool_size=1)
    async with opened(url, pool_size=2) as log, Database(settings) as database, database.connection() as conn:
        queue = await log.configure(QUEUE)
        await log.subscribe(QUEUE, GROUP)
        for key in PARTITIONS:
            await push(log, [1], key=key, ids=[key])
        yield Bench(log, url, queue, conn)


@pytest.mark.parametrize("analyzed", [True, False], ids=["analyzed", "fresh"])
async def test_every_hot_statement_finds_its_rows_by_index(database_url_any: str, analyzed: bool) -> None:
    async with open_bench(database_url_any) as bench:
        bench.grow(3000)
        bench.crowd(groups=4, partitions=1000)
        if analyzed:
            bench.analyze()
        found = {name: await bench.explain(name) for name in FILES if name != "complete"}
        found["lease"] = await bench.explain_lease()
        found["lease when quiet"] = await bench.explain_lease(quiet=True)
        found["complete"] = await bench.explain_complete()
        for name in ("partition", "position", "deduplicated_ids"):
            found[f"by id: {name}"] = await bench.explain_by_id(name)
        for text, explained in await explain_inside(bench.conn, bench.append, bench.append_values()):
            found[f"append: {text[:60]}"] = explained
    assert sum(name.startswith("append: ") for name in found) >= 4
    problems = []
    for name, explained in found.items():
        for node in explained.root.walk():
            if node.kind in ("Seq Scan", "Bitmap Heap Scan") and node.relation != "queues":
                problems.append(f"{name}: {node.kind} on {node.relation}")
            if node.relation is not None and node.rows_read > FEW:
                problems.append(f"{name}: {node.rows_read:g} rows read from {node.relation}")
            if "Sort" in node.kind and node.rows_read > FEW:
                problems.append(f"{name}: sorts {node.rows_read:g} rows")
    assert not problems, "\n".join(problems)


async def test_plans_on_new_tables_use_indexes(database_url_any: str) -> None:
    """A plan that was created for an empty table is reused while the table grows."""
    async with open_bench(database_url_any) as bench:
        fresh = {name: await bench.explain(name) for name in FILES if name != "complete"}
        fresh["lease"] = await bench.explain_lease()
        fresh["complete"] = await bench.explain_complete()
    for name, explained in fresh.items():
        for table in ("chunks", "ids", "positions"):
            for scan in explained.scans(table):
                assert scan.kind in ("Index Scan", "Index Only Scan", "Tid Scan"), f"{name}: {scan}"


async def pages(bench: Bench) -> dict[str, int]:
    return {
        "lease": (await bench.explain_lease()).pages,
        "complete": (await bench.explain_complete()).pages,
        "append": (await explain_call(bench.conn, bench.append, bench.append_values())).pages,
    }


@pytest.mark.slow
async def test_page_reads_do_not_grow_with_history(database_url_any: str) -> None:
    async with open_bench(database_url_any) as bench:
        bench.grow(10)
        await pages(bench)
        young = await pages(bench)
        bench.grow(5000)
        bench.analyze()
        old = await pages(bench)
    for name, before in young.items():
        # The indexes are one level deeper.
        assert old[name] <= 2 * before, f"{name}: {before} pages when young, {old[name]} when old"


CHURN = """
DO $$
BEGIN
    FOR i IN 1..{times} LOOP
        INSERT INTO penstock.positions
            (group_id, partition_id, version, next_offset, lease_end, available_at, attempts, skipped)
        SELECT group_id, partition_id, version + 1, next_offset, lease_end, available_at, attempts, skipped
        FROM penstock.positions p
        WHERE group_id = {group} AND partition_id = ANY('{partitions}')
          AND version = (SELECT max(version) FROM penstock.positions q
                         WHERE q.group_id = p.group_id AND q.partition_id = p.partition_id);
        DELETE FROM penstock.positions p
        WHERE group_id = {group} AND partition_id = ANY('{partitions}')
          AND version < (SELECT max(version) FROM penstock.positions q
                         WHERE q.group_id = p.group_id AND q.partition_id = p.partition_id);
        COMMIT;
    END LOOP;
END $$
"""


@pytest.mark.slow
async def test_page_reads_do_not_grow_under_a_long_transaction(database_url_any: str) -> None:
    snapshot = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM penstock.positions"
    async with open_bench(database_url_any) as bench, held(database_url_any, snapshot):
        await pages(bench)
        before = await pages(bench)
        # Real operations first, then the same versions in greater numbers by SQL.
        for _ in range(50):
            await bench.log.ack(await pop(bench.log, batch=3))
            await push(bench.log, [1], key=PARTITIONS[0])
        partitions = "{" + ",".join(map(str, bench.partitions)) + "}"
        churn = CHURN.format(times=1500, group=bench.group, partitions=partitions)
        with psycopg.connect(bench.url, autocommit=True) as direct:
            await asyncio.to_thread(direct.execute, churn.encode())
        bench.grow(3)
        after = await pages(bench)
    for name in before:
        assert after[name] <= 2 * before[name], f"{name}: {before[name]} pages, then {after[name]}"


def test_hot_statements_fit_the_cache_of_the_driver() -> None:
    # psycopg parses longer statements on each execution.
    for name, file in FILES.items():
        assert len(statements(file).table(name, 2**31, 2**31)) < 4096
