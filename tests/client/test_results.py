"""Results of queries as dicts, Arrow and pandas, from the database and over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock import InvalidOption, InvalidRequest, NotFound, Penstock, SyncPenstock
from penstock.engine.query_registry import Registry
from penstock.engine.results import result_reader
from penstock.engine.results.result_reader import RowRequest, read_page, read_rows
from penstock.stream.windows import SlidingWindow
from tests.cycle_driver import CycleDriver
from tests.log.logs import opened

pytestmark = pytest.mark.slow

T0 = datetime(2023, 11, 14, 22, 0, tzinfo=UTC)
SECONDS = int(T0.timestamp())
MINUTE = timedelta(minutes=1)
#: A sum that a float cannot hold.
EXACT = 2**53 + 1


@pytest.fixture
async def query(database_url: str) -> str:
    """A query with a closed window of two keys and an open one."""
    async with opened(database_url) as log:
        driver = await CycleDriver.start(log, "orders")
        await driver.cycle([("ada", SECONDS, 2, EXACT), ("bob", SECONDS, 1, 5)])
        await driver.cycle([("ada", SECONDS + 60, 3, 30)], upto=SECONDS + 70)
        await driver.close()
        await Registry(log).release_lease(driver.id, driver.fence)
    return "orders"


async def test_live_and_history_are_dicts(url: str, query: str) -> None:
    async with Penstock(url) as q:
        live = await q.live(query)
        closed = await q.history(query)
        everything = await q.history(query, include_open=True)
    (row,) = live
    assert {name: row[name] for name in ("key", "window_start", "window_end", "count", "total")} == {
        "key": "ada",
        "window_start": T0 + MINUTE,
        "window_end": T0 + 2 * MINUTE,
        "count": 3,
        "total": Decimal(30),
    }
    assert isinstance(row["total"], Decimal)
    assert row["updated_at"].tzinfo is UTC
    assert [(row["key"], row["count"], row["total"]) for row in closed] == [("ada", 2, EXACT), ("bob", 1, 5)]
    assert [row["is_open"] for row in everything] == [False, False, True]


async def test_rows_of_a_key_and_of_a_time(url: str, query: str) -> None:
    async with Penstock(url) as q:
        assert [row["key"] for row in await q.history(query, key="bob")] == ["bob"]
        assert [row["key"] for row in await q.live(query, key="bob")] == []
        assert len(await q.history(query, since=T0, until=T0 + MINUTE)) == 2
        assert await q.history(query, since=T0 + MINUTE) == []
        assert await q.history(query, until=T0) == []
        assert [row["key"] for row in await q.live(query, current=True)] == ["ada"]


def test_synchronous_client_returns_arrow_and_pandas(url: str, query: str) -> None:
    with SyncPenstock(url) as q:
        rows = q.history(query)
    table = rows.to_arrow()
    assert table.column("total").to_pylist() == [Decimal(EXACT), Decimal(5)]
    assert table.schema.field("window_end").type == pa.timestamp("us", tz="UTC")
    assert (table.schema.field("count").type, table.schema.field("is_open").type) == (pa.int64(), pa.bool_())
    frame = rows.to_pandas()
    assert frame["count"].sum() == 3
    assert list(frame["key"]) == ["ada", "bob"]


def test_table_without_rows_has_its_columns(url: str, query: str) -> None:
    with SyncPenstock(url) as q:
        table = q.live(query, key="nobody").to_arrow()
    assert table.column_names == ["key", "window_start", "window_end", "count", "total", "updated_at"]
    assert table.num_rows == 0


async def test_all_pages_are_read(database_url: str) -> None:
    async with opened(database_url) as log:
        driver = await CycleDriver.start(log, "online", windows=[SlidingWindow(60_000_000, 10_000_000)])
        starts = range(SECONDS, SECONDS + 500, 10)
        await driver.cycle([(key, start, 1, 0) for start in starts for key in ("ada", "bob")])
        pages = []

        async def fetch(request: RowRequest) -> result_reader.RowPage:
            pages.append(await read_page(log.database, request, limit=7))
            return pages[-1]

        rows = await read_rows(fetch, RowRequest("online"))
        assert [(row["key"], int(row["window_start"].timestamp())) for row in rows] == [
            (key, start) for start in starts for key in ("ada", "bob")
        ]
        assert len(pages) > 10
        with pytest.raises(InvalidRequest, match="more than 1 windows that end at"):
            await read_rows(lambda request: read_page(log.database, request, limit=1), RowRequest("online"))
        await driver.close()


async def test_unknown_query_and_invalid_arguments_are_refused(url: str) -> None:
    async with Penstock(url) as q:
        with pytest.raises(NotFound, match="there is no query 'nothing'"):
            await q.live("nothing")
        with pytest.raises(InvalidOption, match="since must be a datetime with a time zone"):
            await q.history("nothing", since=datetime(2026, 1, 1))
        with pytest.raises(InvalidOption, match="current"):
            await q.live("nothing", current="yes")  # type: ignore[arg-type]
