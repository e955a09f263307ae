"""Hostile names, keys, ids and texts are data, and never SQL, a path or a format."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import sql

from penstock.core.errors import InvalidRequest, NotFound
from penstock.engine.compile.windows.aggregate_columns import ResultColumn, StateColumn
from penstock.engine.query_registry import Registry
from penstock.engine.results.result_tables import ResultTables
from penstock.log.dead_letters.dead_letter import DeadLetterFilter
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from tests.corpus.hostile import NAMES, UNSTORABLE
from tests.log.logs import data, drain, letters, pop, push

#: Names must be printable. The other texts are for keys and ids.
PRINTABLE = [name for name in NAMES if name.isprintable()]


def tables(url: str) -> set[str]:
    with psycopg.connect(url) as conn:
        found = conn.execute("SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname LIKE 'penstock%'")
        return {name for (name,) in found}


async def test_hostile_names_are_only_names(log: Log, database_url: str) -> None:
    before = tables(database_url)
    for name in PRINTABLE:
        await log.configure(name, {"retry_limit": 0, "key_field": name})
        some = [{"data": {name: key}, "key": key, "id": f"{name}{key}"[:250]} for key in NAMES]
        await log.push([Batch(name, some)])
        events = await drain(log, name, group=name)
        assert {event.key for event in events} == set(NAMES)
        assert all(event.data == {name: event.key} for event in events)
        assert [event.key for event in await log.browse(name, key=name)] == [name]
        assert data(await log.fetch(name, name, 0)) == [{name: name}]
        found = await log.find(name, f"{name}{name}"[:250])
        assert found is not None
        assert [info.group for info in await log.groups(name)] == [name]
    assert sorted(queue.name for queue in await log.queues()) == sorted(PRINTABLE)
    for name in PRINTABLE:
        assert await log.delete_queue(name)
    assert tables(database_url) == before


async def test_hostile_errors_and_filters_are_only_texts(log: Log) -> None:
    await log.configure("jobs", {"retry_limit": 0})
    for text in NAMES:
        await push(log, [text], queue="jobs", key=text)
        events = await drain_dead(log, text)
        assert data(events) == [text]
        some = await letters(log, "jobs", error=text, key=text)
        assert [letter.data for letter in some] == [text]
        if text in PRINTABLE:
            assert not await log.dead_letters(DeadLetterFilter(queue="jobs", group=text), limit=10)
    assert await log.purge(DeadLetterFilter(queue="jobs")) == len(NAMES)


async def drain_dead(log: Log, text: str) -> list[Any]:
    events = await pop(log, "jobs")
    assert all(await log.ack(events, "dead_letter", error=text, stage=text, traceback=text))
    return events


@pytest.mark.parametrize("text", UNSTORABLE, ids=lambda text: repr(text[:10]))
async def test_text_that_cannot_be_stored_is_refused_everywhere(log: Log, text: str) -> None:
    await log.configure("jobs")
    asked: list[Any] = [
        lambda: log.configure(text),
        lambda: push(log, [1], queue=text),
        lambda: push(log, [1], queue="jobs", key=text or "\0"),
        lambda: push(log, [1], queue="jobs", ids=[text or "\0"]),
        lambda: drain(log, text),
        lambda: drain(log, "jobs", group=text),
        lambda: log.browse("jobs", key=text) if text and len(text) < 1000 else log.browse(text),
        lambda: log.delete_queue(text),
        lambda: log.seek("jobs", text, "end"),
    ]
    for ask in asked:
        with pytest.raises((InvalidRequest, NotFound)):
            await ask()


async def test_a_query_with_a_hostile_name_drops_only_its_own_views(log: Log, database_url: str) -> None:
    await log.configure("jobs")
    before = tables(database_url)
    none: Any = None
    count = ResultColumn("n", "bigint", (StateColumn("a0", "bigint", none, "{state} + {partial}"),), "{a0}")
    # An identifier of PostgreSQL has at most 63 bytes.
    for name in [name for name in PRINTABLE if len(name.encode()) <= 60]:
        registry = Registry(log)
        query = await registry.register(name, ["from: jobs"], "abc", sink=None, history_seconds=60)
        await registry.create_tables(ResultTables(query.id, name, [count], key_name=name))
        with psycopg.connect(database_url, autocommit=True) as conn:
            view = sql.SQL("SELECT {}, n FROM {}").format(sql.Identifier(name), sql.Identifier("penstock_live", name))
            assert conn.execute(view).fetchall() == []
            assert conn.execute("SELECT * FROM penstock.state").fetchall() == []
        assert await registry.delete(name)
    assert tables(database_url) == before
