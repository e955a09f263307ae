"""The cost of statements does not depend on the number of entries and timers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock.db.statements import Statements
from penstock.log.log import Log
from tests.log.logs import QUEUE
from tests.log.query_plans import explain

#: The most rows that a statement may read.
FEW = 60
KV = Statements("penstock.log.coordination", "kv.sql")
TIMERS = Statements("penstock.log.coordination", "timers.sql")
DUE_TIMERS = Statements("penstock.log.coordination", "due_timers.sql")
NOW = timedelta(0)

CASES: list[tuple[str, str, dict[str, Any]]] = [
    (
        "kv",
        KV["get_prefix"],
        {"namespace": "a", "prefix": "1", "after": "", "keys_only": False, "limit": 10, "max_bytes": 1000, "skew": NOW},
    ),
    ("kv", KV["get_many"], {"namespace": "a", "keys": ["1", "2"], "max_bytes": 1000, "skew": NOW}),
    ("kv", KV["delete_expired"], {"skew": NOW, "limit": 10_000}),
    ("timers", DUE_TIMERS["due"], {"limit": 50, "max_bytes": 1000, "skew": NOW, "skipped": []}),
    ("timers", DUE_TIMERS["seconds_to_next"], {"skew": NOW, "skipped": []}),
    ("timers", TIMERS["list"], {"queue": QUEUE, "after": "1", "limit": 10}),
    ("timers", TIMERS["find"], {"queue": QUEUE, "key": "1"}),
]


@pytest.mark.parametrize("analyze", [True, False], ids=["analyzed", "new"])
async def test_statements_read_few_rows(analyze: bool, log: Log) -> None:
    queue = await log.configure(QUEUE)
    async with log.database.connection() as conn:
        await conn.execute(
            "INSERT INTO penstock.kv SELECT 'a', i, '1', i, clock_timestamp() + interval '1 day', clock_timestamp() "
            "FROM generate_series(1, 20000) AS i"
        )
        await conn.execute(
            "INSERT INTO penstock.timers SELECT %s, i, i, clock_timestamp() + interval '1 day', i, NULL, '1', NULL, "
            "clock_timestamp() FROM generate_series(1, 20000) AS i",
            (queue.id,),
        )
        if analyze:
            await conn.execute("ANALYZE penstock.kv, penstock.timers")
        for table, statement, params in CASES:
            plan = await explain(conn, statement, params)
            assert all(node.rows_read <= FEW for node in plan.scans(table)), statement
