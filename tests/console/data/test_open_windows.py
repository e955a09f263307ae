"""Open windows and live results of queries and columns with hostile names."""

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


async def test_hostile_query_and_column_names(database_url: str) -> None:
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
            assert {column.name for column in columns} == {"count", "total", *SHORT}
            for all_windows in (True, False):
                request = OpenWindowsRequest(query, columns, query.name, True, query.name[:2], 0, 10, all_windows)
                assert [row.key for row in (await read_open_windows(log.database, request)).rows] == [query.name]
            moment = await QueryResultReader(log.database, query.id, query.name).read(
                None, [], snapshot=True, keys=None
            )
            assert moment.snapshot is not None
            assert [key for key, _ in moment.snapshot.rows] == [query.name]
