"""The board and the live results of a query with names of every kind: none is filled in where another stands."""

from __future__ import annotations

from penstock.console.data.open_windows import (
    OpenWindowsRequest,
    list_windowed_queries,
    read_columns,
    read_open_windows,
)
from penstock.server.live.query_results import QueryResultReader
from penstock.stream.definition import Definition
from tests.corpus.hostile import NAMES
from tests.cycle_driver import CycleDriver
from tests.log.logs import opened

SHORT = [name for name in NAMES if name.isprintable() and len(name.encode()) <= 60]


async def test_queries_of_any_name_with_columns_of_any_are_shown(database_url: str) -> None:
    counted = Definition.from_("orders").window_tumbling(seconds=60).aggregate({"count": "count(*)", "total": "sum(x)"})
    async with opened(database_url) as log:
        for name in SHORT:
            driver = await CycleDriver.start(log, name, stream=counted.select(dict.fromkeys(SHORT, "count")))
            await driver.cycle([(name, 0, 2, 5)], upto=10)
            await driver.close()
        queries = await list_windowed_queries(log.database)
        assert sorted(query.name for query in queries) == sorted(SHORT)
        for query in queries:
            columns = await read_columns(log.database, query)
            assert {column for column, _ in columns} == {"count", "total", *SHORT}
            for every in (True, False):
                asked = OpenWindowsRequest(query, columns, query.name, True, query.name[:2], 0, 10, every)
                assert [row[0] for row in (await read_open_windows(log.database, asked)).rows] == [query.name]
            moment = await QueryResultReader(log.database, query.id, query.name).read(
                None, [], snapshot=True, keys=None
            )
            assert moment.snapshot is not None
            assert [key for key, _ in moment.snapshot.rows] == [query.name]
