"""Tables, columns and channels with hostile names as sources."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from penstock.core.errors import InvalidRequest
from penstock.log.log import Log
from penstock.sources import SourceRunner, Table
from tests.corpus.hostile import NAMES
from tests.log.logs import drain

NAMED = [name for name in NAMES if name.isprintable() and len(name.encode()) <= 63]
NO_TABLES = [name for name in NAMES if name != "penstock.queues"]


@pytest.mark.parametrize("name", [*NAMED, "a.b", 'a"."b'])
async def test_a_table_with_any_name_is_read(name: str, log: Log, queue: str, sinks_url: str) -> None:
    schema = f"of {name}"[:20]
    identifier = sql.Identifier(schema, name).as_string()
    with psycopg.connect(sinks_url, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        conn.execute(
            sql.SQL("CREATE TABLE {} ({} int PRIMARY KEY)").format(sql.Identifier(schema, name), sql.Identifier(name))
        )
        conn.execute(sql.SQL("INSERT INTO {} VALUES (1), (2)").format(sql.Identifier(schema, name)))
        for _ in range(2):
            source = Table(identifier, column=name, url=sinks_url, notify=name, follow=False)
            await SourceRunner(log, source, queue, name=queue).run()
        conn.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
    assert [event.data for event in await drain(log, queue)] == [{name: 1}, {name: 2}]


@pytest.mark.parametrize("name", [*NO_TABLES, "", "a.b.c", "a.b.c.d", "a b", '"'], ids=lambda name: name[:20])
async def test_an_unknown_table_is_refused(name: str, log: Log, queue: str, sinks_url: str) -> None:
    with pytest.raises(InvalidRequest, match="table"):
        await SourceRunner(log, Table(name, column="id", url=sinks_url), queue, name=queue).run(idle_seconds=0)
