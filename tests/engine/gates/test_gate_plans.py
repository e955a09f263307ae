"""What a release costs depends on the lanes that it concerns, not on those that rest or wait, nor on other queries."""

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
from tests.log.plans import Explained, explain

LANES = ("ada", "bob", "cyd")
#: More rows than this no statement has to look at, however many lanes there are.
FEW = 60
HOT = (
    "begin",
    "lanes",
    "states",
    "limits",
    "in_flight",
    "store_lanes",
    "store_states",
    "lay_down",
    "take_up",
    "ledger",
    "lock_query",
    "waking",
    "wake",
    "heads",
    "is_taken",
    "put_back",
    "positions",
)
_sql = Statements("penstock.engine.gates", "release.sql")

QUERIES = """
INSERT INTO penstock.queries (name, description, fingerprint, history_seconds)
SELECT name, '{}', '', 0 FROM unnest(ARRAY['mine', 'another']) AS name
"""

#: Lanes that rest, lanes that wait for long, and as many of another query, each with a state and limits of its own.
CROWD = """
WITH lanes AS (
    INSERT INTO penstock.partitions (queue_id, epoch, name)
    SELECT %(queue)s, 0, 'idle ' || n FROM generate_series(1, %(lanes)s) AS n
    RETURNING id, name
), mine AS (
    SELECT id, name, row_number() OVER (ORDER BY id) %% 2 = 0 AS waits FROM lanes
), pointed AS (
    INSERT INTO penstock.cursors (group_id, partition_id, state)
    SELECT %(group)s, id, CASE WHEN waits THEN 3 ELSE 1 END FROM mine
), stood AS (
    INSERT INTO penstock.positions (group_id, partition_id, version, next_offset, lease_end, available_at)
    SELECT %(group)s, id, 7, 0, 0, 'epoch' FROM mine
), limited AS (
    INSERT INTO penstock.gate_limits (query, key, gate, rate) SELECT 'mine', name, 1, 5 FROM mine
), known AS (
    INSERT INTO penstock.gate_lanes (query_id, partition_id, key, wakes_at, wants, decided_at)
    SELECT q.id, m.id, m.name, CASE WHEN m.waits THEN clock_timestamp() + interval '1 day' END, 10, clock_timestamp()
    FROM mine m, penstock.queries q
), listed AS (
    INSERT INTO penstock.cycles (query_id, cycle, fence, plan, planned)
    SELECT q.id, n, 0, '', 0 FROM generate_series(1, %(lanes)s) AS n, penstock.queries q
)
INSERT INTO penstock.gate_states (query_id, partition_id, gate, amount, rate, at_us, level)
SELECT q.id, m.id, 1, 10, 5, 0, 0 FROM mine m, penstock.queries q
"""


class Place:
    """A gated query with three lanes that are busy."""

    def __init__(self, url: str, source: Queue, sink: Queue, conn: AsyncConnection[Any]) -> None:
        self.url = url
        self.source = source
        self.sink = sink
        self.conn = conn
        with psycopg.connect(url, autocommit=True) as direct:
            direct.execute(QUERIES)
            self.query = direct.execute("SELECT id FROM penstock.queries WHERE name = 'mine'").fetchall()[0][0]
            found = direct.execute(
                "SELECT id FROM penstock.partitions WHERE queue_id = %s AND name = ANY(%s) ORDER BY id",
                [source.id, list(LANES)],
            )
            self.lanes = [lane for (lane,) in found]
            self.groups: dict[int, int] = dict(direct.execute("SELECT queue_id, id FROM penstock.groups").fetchall())

    def crowd(self, lanes: int) -> None:
        with psycopg.connect(self.url, autocommit=True) as direct:
            direct.execute(CROWD, {"queue": self.source.id, "group": self.groups[self.source.id], "lanes": lanes})

    def analyze(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as direct:
            direct.execute("ANALYZE")

    def params(self, name: str) -> dict[str, Any]:
        """Something for every parameter of every statement."""
        many = len(self.lanes)

        def each(value: object) -> str:
            return "{" + ",".join([str(value)] * many) + "}"

        lanes = "{" + ",".join(map(str, self.lanes)) + "}"
        return {
            "query": self.query,
            "name": "mine",
            "fence": 0,
            "cycle": 1_000_000 if name == "ledger" else 7,
            "now": datetime.now(UTC),
            "group": self.groups[(self.sink if name == "in_flight" else self.source).id],
            "partitions": lanes,
            "keys": "{" + ",".join(LANES) + "}",
            "sink": self.sink.id,
            "epoch": self.sink.epoch,
            **{field: each(1) for field in ("passed", "allowed", "nexts", "wakes", "deficits", "wants", "gates")},
            **{field: each(5) for field in ("amounts", "rates", "windows", "ats", "levels", "costs", "turns")},
            **{field: each('"{1}"') for field in ("times", "grants")},
            **{field: each("true") for field in ("denied", "waits")},
            **dict.fromkeys(("events_in", "events_out", "dead"), 1),
            "took": "{}",
        }

    async def explain(self, name: str) -> Explained:
        queue = self.sink if name == "in_flight" else self.source
        return await explain(self.conn, _sql.table(name, queue.id, queue.segment), self.params(name))


@asynccontextmanager
async def place(url: str) -> AsyncIterator[Place]:
    async with (
        opened(url, pool_size=2) as log,
        Database(Settings(database_url=url, pool_size=1)) as database,
        database.connection() as conn,
    ):
        queues = {}
        for name in ("calls", "out"):
            queues[name] = await log.configure(name, partitioning="key")
            await log.subscribe(name, "mine")
            for key in LANES:
                await push(log, [1], queue=name, key=key)
        yield Place(url, queues["calls"], queues["out"], conn)


@pytest.mark.parametrize("analyzed", [True, False], ids=["analyzed", "fresh"])
async def test_every_hot_statement_of_a_gate_looks_at_the_lanes_it_concerns_alone(
    database_url: str, analyzed: bool
) -> None:
    async with place(database_url) as here:
        here.crowd(3000)
        if analyzed:
            here.analyze()
        found = {name: await here.explain(name) for name in HOT}
    problems = []
    for name, explained in found.items():
        for node in explained.root.walk():
            # There are few of these.
            if node.kind in ("Seq Scan", "Bitmap Heap Scan") and node.relation not in ("queues", "queries"):
                problems.append(f"{name}: {node.kind} on {node.relation}")
            if node.relation is not None and node.rows_read > FEW:
                problems.append(f"{name}: {node.rows_read:g} rows read from {node.relation}")
            if "Sort" in node.kind and node.rows_read > FEW:
                problems.append(f"{name}: sorts {node.rows_read:g} rows")
    assert not problems, "\n".join(problems)
