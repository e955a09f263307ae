"""Tables with hostile names as sinks."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from psycopg import sql

from penstock.log.log import Log
from penstock.sinks import Backoff, Sinks, Table
from tests.conditions import eventually_async
from tests.corpus.hostile import NAMES
from tests.log.logs import letters, push

NAMED = [name for name in NAMES if name.isprintable() and len(name.encode()) <= 63]


@pytest.mark.parametrize("name", [*NAMED, "a.b", 'a"."b'], ids=lambda name: name[:20])
async def test_a_table_with_any_name_is_written(name: str, log: Log, queue: str, sinks_url: str) -> None:
    schema = f"to {name}"[:20]
    identifier = sql.Identifier(schema, name)
    await push(log, [{name: 1, "who": name}, {name: 1, "who": "ada"}, {name: 2, "who": name}], queue=queue, key=name)
    with psycopg.connect(sinks_url, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        made = sql.SQL("CREATE TABLE {} ({} int PRIMARY KEY, who text)").format(identifier, sql.Identifier(name))
        conn.execute(made)
        await Sinks(log=log).add(queue, Table(identifier.as_string())).run(idle_seconds=0)
        rows = conn.execute(sql.SQL("SELECT * FROM {} ORDER BY 1").format(identifier)).fetchall()
        conn.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
    assert rows == [(1, "ada"), (2, name)]
    assert await letters(log, queue) == []


@pytest.mark.parametrize("name", ["'; DROP TABLE penstock.queues; --", "a.b.c", "a.b.c.d", "a b", '"', "../.."])
async def test_an_unknown_table_is_reported_and_retried(name: str, log: Log, queue: str) -> None:
    await push(log, [{"n": 1}], queue=queue, key="a")
    sinks = Sinks(log=log).add(queue, Table(name), backoff=Backoff(first=0.01, longest=0.05))
    running = asyncio.create_task(sinks.run())

    async def is_reported() -> object:
        return "there is no table" in str(sinks.workers[0].counters.error)

    await eventually_async(is_reported)
    sinks.stop()
    await running
    assert await letters(log, queue) == []
