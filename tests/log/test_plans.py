"""What a statement costs does not depend on how much history there is.

The plans are the generic ones, on a connection of the log's own, once with statistics and once on tables that were
just made and never analyzed.
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
from penstock.log.read.lease import DROP_SOME_LEASES, UNREAD
from penstock.log.storage import chunk
from tests.log.logs import GROUP, QUEUE, held, opened, pop, push
from tests.log.plans import Explained, explain, explain_call, explain_inside

LANES = ("ada", "bob", "cyd")
#: More than this no statement has to look at, whatever lies behind it.
FEW = 60

FILES = {
    "lease": "read/pop.sql",
    "next_moment": "read/pop.sql",
    "extend": "read/pop.sql",
    "drop_leases": "read/pop.sql",
    "held": "read/pop.sql",
    "complete": "read/ack.sql",
    "lock_cursors": "read/ack.sql",
    "standing": "read/ack.sql",
    "write_positions": "read/ack.sql",
    "chunks_between": "read/reader.sql",
    "first_chunks_between": "read/reader.sql",
    "segment_of": "read/reader.sql",
    "lock_partitions": "write/append.sql",
    "seen_ids": "write/append.sql",
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
), lanes AS (
    INSERT INTO penstock.partitions (queue_id, epoch, name)
    SELECT %(queue)s, 0, 'idle ' || n FROM generate_series(1, %(lanes)s) AS n
    RETURNING id
), pointed AS (
    INSERT INTO penstock.cursors (group_id, partition_id, state)
    SELECT g.id, l.id, g.state FROM (SELECT id, 0 AS state FROM others UNION ALL SELECT %(group)s, 1) g, lanes l
    RETURNING group_id, partition_id
)
INSERT INTO penstock.positions (group_id, partition_id, version, next_offset, lease_end, available_at)
SELECT group_id, partition_id, 7, 0, 0, 'epoch' FROM pointed
"""


def statements(file: str) -> Statements:
    """The statements of one file of the log: ``read/pop.sql`` lies in the package ``penstock.log.read``."""
    package, _, name = file.partition("/")
    return Statements(f"penstock.log.{package}", name)


class Place:
    """A queue with some history, and a connection to ask it on."""

    def __init__(self, log: Log, url: str, queue: Queue, conn: AsyncConnection[Any]) -> None:
        self.log = log
        self.url = url
        self.queue = queue
        self.conn = conn
        self.lease = uuid4()
        self.body = chunk.encode(chunk.Columns(b'{"n": 1}', 1))
        with psycopg.connect(url, autocommit=True) as direct:
            lanes = direct.execute("SELECT id FROM penstock.partitions WHERE name = ANY(%s) ORDER BY id", [list(LANES)])
            self.lanes = [lane for (lane,) in lanes]
            self.group = direct.execute("SELECT id FROM penstock.groups WHERE name = %s", [GROUP]).fetchall()[0][0]

    def grow(self, chunks: int) -> None:
        """Lengthen each lane by so many copies of its last chunk, with an id for each."""
        table, ids = (
            sql.Identifier("penstock", f"{kind}_{self.queue.id}_{self.queue.segment}") for kind in ("chunks", "ids")
        )
        with psycopg.connect(self.url, autocommit=True) as direct:
            direct.execute(sql.SQL(GROW).format(table), (chunks,))
            direct.execute(sql.SQL(GROW_IDS).format(ids), (chunks,))

    def crowd(self, groups: int, lanes: int) -> None:
        """Add lanes, and groups that stand in them, with none of which this group has anything to do."""
        with psycopg.connect(self.url, autocommit=True) as direct:
            direct.execute(CROWD, {"queue": self.queue.id, "group": self.group, "groups": groups, "lanes": lanes})

    def analyze(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as direct:
            direct.execute("ANALYZE")

    def statement(self, name: str) -> str:
        return statements(FILES[name]).table(name, self.queue.id, self.queue.segment)

    def params(self) -> dict[str, Any]:
        """Something for every parameter of every statement."""
        lanes = "{" + ",".join(map(str, self.lanes)) + "}"
        groups = "{" + ",".join([str(self.group)] * len(self.lanes)) + "}"
        ones = "{" + ",".join(["1"] * len(self.lanes)) + "}"
        return {
            "skew": timedelta(0),
            "queue": self.queue.id,
            "segment": self.queue.segment,
            "epoch": self.queue.epoch,
            "group": self.group,
            "groups": groups,
            "after": 0,
            "upto": 2**62,
            "partitions": lanes,
            "partition": self.lanes[0],
            "offset": 1,
            "offsets": ones,
            "batch": 10,
            "lease": self.lease,
            "leases": "{" + ",".join([str(self.lease)] * len(self.lanes)) + "}",
            "lease_seconds": 60.0,
            "seconds": 60.0,
            "starts": ones,
            "ends": "{" + ",".join(["9"] * len(self.lanes)) + "}",
            "most": 64,
            "longest": chunk.MAX_EVENTS,
            "hashes": "{" + ",".join(str(UUID(int=n)) for n in range(5)) + "}",
            "window": 3600.0,
            "flush": uuid4(),
            "upload": 1,
            "numbers": ones,
            "targets": lanes,
            "afters": ones,
            "versions": "{" + ",".join(["10"] * len(self.lanes)) + "}",
            "nexts": ones,
            "availables": "{" + ",".join(["now"] * len(self.lanes)) + "}",
            "attempts": ones,
            "expiries": ones,
            "suspects": ones,
            "skipped": "{" + ",".join(['"{}"'] * len(self.lanes)) + "}",
        }

    async def explain(self, name: str, **params: Any) -> Explained:
        return await explain(self.conn, self.statement(name), self.params() | params)

    async def explain_lease(self, *, quiet: bool = False) -> Explained:
        params = self.params() | {"partitions": len(self.lanes), "leases": "{" + str(self.lease) + "}", "quiet": 0.001}
        statement = self.statement("lease")
        if quiet:
            more = Statements("penstock.log.read", "pop.sql").table("when_quiet", self.queue.id, self.queue.segment)
            statement = statement.replace(UNREAD, f"{UNREAD}\n{more}")
        return await explain(self.conn, statement, params)

    async def explain_by_id(self, name: str) -> Explained:
        statement = Statements("penstock.log.read", "ack_by_id.sql").table(name, self.queue.id, self.queue.segment)
        return await explain(self.conn, statement, self.params())

    async def explain_complete(self) -> Explained:
        """Complete what is leased here and now; it is undone afterwards."""
        leased = self.statement("lease")
        async with self.conn.transaction(force_rollback=True):
            params = self.params() | {"partitions": len(self.lanes), "leases": "{" + str(self.lease) + "}"}
            await self.conn.execute(leased.encode(), params)
            ends = "{" + ",".join(["1"] * len(self.lanes)) + "}"
            return await explain(self.conn, self.statement("complete"), self.params() | {"upto": ends})

    @property
    def append(self) -> str:
        return f"append_{self.queue.id}_{self.queue.segment}"

    def append_values(self) -> dict[str, Any]:
        """Something for every argument and variable of the function that appends."""
        count, size = len(self.lanes), len(self.body)
        return {
            "_partitions": self.lanes,
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
            "_hash_partitions": self.lanes,
            "_slots": list(range(1, count + 1)),
            "_places": [0] * count,
            "_heads": [1] * count,
            "_id_segments": [self.queue.segment],
            "_at": None,
        }


@asynccontextmanager
async def place(url: str) -> AsyncIterator[Place]:
    settings = Settings(database_url=url, pool_size=1)
    async with opened(url, pool_size=2) as log, Database(settings) as database, database.connection() as conn:
        queue = await log.configure(QUEUE)
        await log.subscribe(QUEUE, GROUP)
        for key in LANES:
            await push(log, [1], key=key, ids=[key])
        yield Place(log, url, queue, conn)


@pytest.mark.parametrize("analyzed", [True, False], ids=["analyzed", "fresh"])
async def test_every_hot_statement_finds_its_rows_by_index(database_url_any: str, analyzed: bool) -> None:
    async with place(database_url_any) as here:
        here.grow(3000)
        here.crowd(groups=4, lanes=1000)
        if analyzed:
            here.analyze()
        found = {name: await here.explain(name) for name in FILES if name not in ("lease", "complete")}
        found["lease"] = await here.explain_lease()
        found["drop some leases"] = await explain(here.conn, DROP_SOME_LEASES, here.params())
        found["lease when quiet"] = await here.explain_lease(quiet=True)
        found["complete"] = await here.explain_complete()
        for name in ("lane", "standing", "seen_ids"):
            found[f"by id: {name}"] = await here.explain_by_id(name)
        for text, explained in await explain_inside(here.conn, here.append, here.append_values()):
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


async def test_on_tables_just_made_the_plans_are_the_same(database_url_any: str) -> None:
    """A plan that is made when a table is empty is kept while it grows."""
    async with place(database_url_any) as here:
        fresh = {name: await here.explain(name) for name in FILES if name not in ("lease", "complete")}
        fresh["lease"] = await here.explain_lease()
        fresh["complete"] = await here.explain_complete()
    for name, explained in fresh.items():
        for table in ("chunks", "ids", "positions"):
            for scan in explained.scans(table):
                assert scan.kind in ("Index Scan", "Index Only Scan", "Tid Scan"), f"{name}: {scan}"


async def pages(here: Place) -> dict[str, int]:
    return {
        "lease": (await here.explain_lease()).pages,
        "complete": (await here.explain_complete()).pages,
        "append": (await explain_call(here.conn, here.append, here.append_values())).pages,
    }


@pytest.mark.slow
async def test_the_pages_that_are_touched_do_not_grow_with_history(database_url_any: str) -> None:
    async with place(database_url_any) as here:
        here.grow(10)
        await pages(here)
        young = await pages(here)
        here.grow(5000)
        here.analyze()
        old = await pages(here)
    for name, before in young.items():
        # Its indexes are a level deeper, and that is all.
        assert old[name] <= 2 * before, f"{name}: {before} pages when young, {old[name]} when old"


CHURN = """
DO $$
BEGIN
    FOR i IN 1..{times} LOOP
        INSERT INTO penstock.positions
            (group_id, partition_id, version, next_offset, lease_end, available_at, attempts, skipped)
        SELECT group_id, partition_id, version + 1, next_offset, lease_end, available_at, attempts, skipped
        FROM penstock.positions p
        WHERE group_id = {group} AND partition_id = ANY('{lanes}')
          AND version = (SELECT max(version) FROM penstock.positions q
                         WHERE q.group_id = p.group_id AND q.partition_id = p.partition_id);
        DELETE FROM penstock.positions p
        WHERE group_id = {group} AND partition_id = ANY('{lanes}')
          AND version < (SELECT max(version) FROM penstock.positions q
                         WHERE q.group_id = p.group_id AND q.partition_id = p.partition_id);
        COMMIT;
    END LOOP;
END $$
"""


@pytest.mark.slow
async def test_the_pages_that_are_touched_do_not_grow_under_a_held_transaction(database_url_any: str) -> None:
    snapshot = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM penstock.positions"
    async with place(database_url_any) as here, held(database_url_any, snapshot):
        await pages(here)
        before = await pages(here)
        # Real rounds first, then many more of the same versions than a test has time for.
        for _ in range(50):
            await here.log.ack(await pop(here.log, batch=3))
            await push(here.log, [1], key=LANES[0])
        lanes = "{" + ",".join(map(str, here.lanes)) + "}"
        churn = CHURN.format(times=1500, group=here.group, lanes=lanes)
        with psycopg.connect(here.url, autocommit=True) as direct:
            await asyncio.to_thread(direct.execute, churn.encode())
        here.grow(3)
        after = await pages(here)
    for name in before:
        assert after[name] <= 2 * before[name], f"{name}: {before[name]} pages, then {after[name]}"


def test_the_driver_remembers_every_hot_statement() -> None:
    # What is longer is read anew, parameter by parameter, each time that it is sent.
    for name, file in FILES.items():
        assert len(statements(file).table(name, 2**31, 2**31)) < 4096
