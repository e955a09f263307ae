"""The statements of a release read only the rows of its partitions, not those of idle or parked ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.db.statements import Statements
from penstock.log.queue import Queue
from tests.log.logs import opened, push
from tests.log.query_plans import Explained, explain

KEYS = ("ada", "bob", "cyd")
#: No statement may read more rows than this, however many partitions there are.
MAX_ROWS = 60
#: The statements that run for every release or every planned cycle, by package and file.
HOT_STATEMENTS = {
    ("gates", "release.sql"): ("lock_for_release", "record_release"),
    ("gates", "gate_state.sql"): (
        "partitions",
        "meters",
        "limits",
        "in_flight",
        "store_partitions",
        "store_meters",
        "park",
        "resume",
    ),
    ("gates", "gated_planner.sql"): ("due_partitions", "clear_wake_times", "wanted", "lock_query"),
    ("planning", "planner.sql"): ("unread_partitions",),
}

QUERIES = """
INSERT INTO penstock.queries (name, description, fingerprint, history_seconds)
SELECT name, '{}', '', 0 FROM unnest(ARRAY['mine', 'another']) AS name
"""

#: Idle partitions, parked partitions, and as many of another query, each with a state and limits of its own.
OTHER_PARTITIONS = """
WITH added AS (
    INSERT INTO penstock.partitions (queue_id, epoch, name)
    SELECT %(queue)s, 0, 'idle ' || n FROM generate_series(1, %(partitions)s) AS n
    RETURNING id, name
), mine AS (
    SELECT id, name, row_number() OVER (ORDER BY id) %% 2 = 0 AS waits FROM added
), pointed AS (
    INSERT INTO penstock.cursors (group_id, partition_id, state)
    SELECT %(group)s, id, CASE WHEN waits THEN 3 ELSE 1 END FROM mine
), stood AS (
    INSERT INTO penstock.positions (group_id, partition_id, version, next_offset, lease_end, available_at)
    SELECT %(group)s, id, 7, 0, 0, 'epoch' FROM mine
), limited AS (
    INSERT INTO penstock.gate_limits (query, key, gate, rate) SELECT 'mine', name, 1, 5 FROM mine
), known AS (
    INSERT INTO penstock.gate_keys (query_id, partition_id, key, wakes_at, wants, decided_at)
    SELECT q.id, m.id, m.name, CASE WHEN m.waits THEN clock_timestamp() + interval '1 day' END, 10, clock_timestamp()
    FROM mine m, penstock.queries q
), listed AS (
    INSERT INTO penstock.cycles (query_id, cycle, fence, plan, planned)
    SELECT q.id, n, 0, '', 0 FROM generate_series(1, %(partitions)s) AS n, penstock.queries q
)
INSERT INTO penstock.gate_states (query_id, partition_id, gate, amount, rate, at_us, level)
SELECT q.id, m.id, 1, 10, 5, 0, 0 FROM mine m, penstock.queries q
"""


class GatedQuery:
    """A gated query with three busy partitions."""

    def __init__(self, url: str, source: Queue, sink: Queue, conn: AsyncConnection[Any]) -> None:
        self.url = url
        self.source = source
        self.sink = sink
        self.conn = conn
        with psycopg.connect(url, autocommit=True) as direct:
            direct.execute(QUERIES)
            self.query = direct.execute("SELECT id FROM penstock.queries WHERE name = 'mine'").fetchall()[0][0]
            rows = direct.execute(
                "SELECT id FROM penstock.partitions WHERE queue_id = %s AND name = ANY(%s) ORDER BY id",
                [source.id, list(KEYS)],
            )
            self.partitions = [partition_id for (partition_id,) in rows]
            self.groups: dict[int, int] = dict(direct.execute("SELECT queue_id, id FROM penstock.groups").fetchall())

    def add_partitions(self, count: int) -> None:
        params = {"queue": self.source.id, "group": self.groups[self.source.id], "partitions": count}
        with psycopg.connect(self.url, autocommit=True) as direct:
            direct.execute(OTHER_PARTITIONS, params)

    def analyze(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as direct:
            direct.execute("ANALYZE")

    def params(self, statement: str) -> dict[str, Any]:
        """A value for every parameter of every statement."""

        def each(value: object) -> str:
            return "{" + ",".join([str(value)] * len(self.partitions)) + "}"

        return {
            "query": self.query,
            "name": "mine",
            "fence": 0,
            "cycle": 1_000_000 if statement == "record_release" else 7,
            "now": datetime.now(UTC),
            "group": self.groups[(self.sink if statement == "in_flight" else self.source).id],
            "partitions": "{" + ",".join(map(str, self.partitions)) + "}",
            "keys": "{" + ",".join(KEYS) + "}",
            "sink": self.sink.id,
            "epoch": self.sink.epoch,
            **{field: each(1) for field in ("passed", "allowed", "nexts", "wakes", "deficits", "wants", "gates")},
            **{field: each(5) for field in ("amounts", "rates", "windows", "ats", "levels", "costs", "turns")},
            **{field: each('"{1}"') for field in ("times", "grants")},
            **{field: each("true") for field in ("denied", "waits")},
            **dict.fromkeys(("events_in", "events_out", "dead"), 1),
            "took": "{}",
        }

    async def explain(self, package: str, file: str, statement: str) -> Explained:
        queue = self.sink if statement == "in_flight" else self.source
        statements = Statements(f"penstock.engine.{package}", file)
        return await explain(self.conn, statements.table(statement, queue.id, queue.segment), self.params(statement))


@asynccontextmanager
async def gated_query(url: str) -> AsyncIterator[GatedQuery]:
    async with (
        opened(url, pool_size=2) as log,
        Database(Settings(database_url=url, pool_size=1)) as database,
        database.connection() as conn,
    ):
        queues = {}
        for name in ("calls", "out"):
            queues[name] = await log.configure(name, partitioning="key")
            await log.subscribe(name, "mine")
            for key in KEYS:
                await push(log, [1], queue=name, key=key)
        yield GatedQuery(url, queues["calls"], queues["out"], conn)


@pytest.mark.parametrize("analyzed", [True, False], ids=["analyzed", "fresh"])
async def test_hot_statements_read_only_the_partitions_of_the_release(database_url: str, analyzed: bool) -> None:
    async with gated_query(database_url) as query:
        query.add_partitions(3000)
        if analyzed:
            query.analyze()
        plans = {
            statement: await query.explain(package, file, statement)
            for (package, file), statements in HOT_STATEMENTS.items()
            for statement in statements
        }
    problems = []
    for statement, plan in plans.items():
        for node in plan.root.walk():
            # These tables are small.
            if node.kind in ("Seq Scan", "Bitmap Heap Scan") and node.relation not in ("queues", "queries"):
                problems.append(f"{statement}: {node.kind} on {node.relation}")
            if node.relation is not None and node.rows_read > MAX_ROWS:
                problems.append(f"{statement}: {node.rows_read:g} rows read from {node.relation}")
            if "Sort" in node.kind and node.rows_read > MAX_ROWS:
                problems.append(f"{statement}: sorts {node.rows_read:g} rows")
    assert not problems, "\n".join(problems)
