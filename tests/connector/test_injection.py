"""Hostile names in options of ``format("penstock")`` are not executed as SQL."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from pyspark.sql.types import StringType

from penstock.core.errors import NotFound
from penstock.engine.query_registry import Registry
from penstock.engine.results.result_tables import ResultTables
from penstock.log.log import Log
from tests.connector.direct_source import DirectSource, arrow, schema_of
from tests.corpus.hostile import NAMES
from tests.cycle_driver import COLUMNS
from tests.engine.pipelines import Bench
from tests.log.logs import opened

pytestmark = pytest.mark.slow

PRINTABLE = [name for name in NAMES if name.isprintable()]
SHORT = [name for name in PRINTABLE if len(name.encode()) <= 60]
VALUES = schema_of("key", "value")
ROW = "INSERT INTO penstock.state_{id} VALUES (%s, now(), now(), 1, 2, 3, now())"


def test_hostile_names_of_queues_groups_keys_and_writers(bench: Bench, direct: DirectSource) -> None:
    for name in PRINTABLE:
        bench.queue(name)
        for _ in range(2):
            writer = direct.writer(VALUES, queue=name, txnAppId=name, txnVersion="1")
            writer.commit([writer.write(iter([arrow(VALUES, [{"key": name, "value": "1"}])]))])
        assert [row["key"] for row in direct.rows(queue=name, key=name)] == [name]
        stream = direct.stream(queue=name, group=name, startingOffsets="earliest")
        end, rows = direct.next(stream, stream.initialOffset())
        assert [(row["queue"], row["key"]) for row in rows] == [(name, name)]
        stream.commit(end)
        asked = "SELECT g.name FROM penstock.groups g JOIN penstock.queues q ON q.id = g.queue_id WHERE q.name = %s"
        assert bench.ask(asked, name) == name


async def test_hostile_names_of_queries_and_keys(direct: DirectSource, database_url: str) -> None:
    async with opened(database_url) as log:
        for name in SHORT:
            query = await make(log, name)
            with psycopg.connect(database_url) as conn:
                conn.execute(ROW.replace("{id}", str(query)).encode(), [name])
            result: Any = direct.format(query=name)
            assert result.schema().startswith(f"`key` string, `{name.replace('`', '``')}` string, `window_start`")
            reader = result.reader(schema_of(**{name: StringType()}))
            assert [batch.to_pylist() for batch in reader.read(None)] == [[{name: name}]]
            assert await Registry(log).delete(name)
            with pytest.raises(NotFound):
                result.schema()


async def make(log: Log, name: str) -> int:
    query = await Registry(log).register(name, ["from: x"], "abc", sink=None, history_seconds=60)
    await Registry(log).create_tables(ResultTables(query.id, name, COLUMNS, key_name=name))
    return query.id
