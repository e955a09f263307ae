"""Open windows and live results of queries and columns with hostile names."""

from __future__ import annotations

import pytest

from penstock.console.data.open_windows import (
    OpenWindowsRequest,
    WindowedQuery,
    list_windowed_queries,
    read_columns,
    read_open_windows,
)
from penstock.server.live.query_results import QueryResultReader
from penstock.stream.definition import Definition
from penstock.stream.windows import SlidingWindow
from tests.corpus.hostile import NAMES
from tests.cycle_driver import CycleDriver
from tests.log.logs import opened

SHORT = [name for name in NAMES if name.isprintable() and len(name.encode()) <= 60]


@pytest.mark.slow
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


async def test_board_shows_the_current_window_of_each_key(database_url: str) -> None:
    async with opened(database_url) as log:
        driver = await CycleDriver.start(log, "online", windows=[SlidingWindow(60_000_000, 20_000_000)])
        await driver.cycle([("ada", start, 1, 0) for start in (20, 40, 60)], upto=75)
        await driver.cycle([("ada", start, 1, 0) for start in (40, 60, 80)], upto=85)
        (query,) = await list_windowed_queries(log.database)
        columns = await read_columns(log.database, query)
        request = OpenWindowsRequest(query, columns, "count", True, "", 0, 10)
        shown = await read_open_windows(log.database, request)
        assert [(row.end.timestamp(), row.values["count"]) for row in shown.rows] == [(80.0, 1)]
        await driver.close()


async def test_sums_are_exact(database_url: str) -> None:
    counted = Definition.from_("orders").window_tumbling(seconds=60).aggregate({"count": "count(*)", "total": "sum(x)"})
    amount = 2**53 + 1  # no double has this value
    async with opened(database_url) as log:
        driver = await CycleDriver.start(log, "sales", stream=counted)
        await driver.cycle([(key, 0, 1, amount) for key in "abc"], upto=10)
        await driver.close()
        (query,) = await list_windowed_queries(log.database)
        columns = await read_columns(log.database, query)
        result = await read_open_windows(log.database, OpenWindowsRequest(query, columns, "total", True, "", 0, 10))
        assert (result.sums["total"], result.largest["total"]) == (3 * amount, amount)


@pytest.mark.parametrize(
    ("lines", "is_additive", "overlaps"),
    [
        (("window: tumbling 5 s", "aggregate n: count(*)"), True, False),
        (("window: tumbling 5 s", "aggregate n: count_distinct(user)"), False, False),
        (("window: tumbling 5 s", "aggregate n: approx_distinct(user)"), False, False),
        (("window: sliding 60 s every 5 s", "aggregate n: sum(x)"), True, True),
    ],
)
def test_totals_of_distinct_counts_and_overlapping_windows(
    lines: tuple[str, ...], is_additive: bool, overlaps: bool
) -> None:
    query = WindowedQuery(1, "q", lines)
    assert (query.is_additive("n"), query.has_overlapping_windows) == (is_additive, overlaps)
