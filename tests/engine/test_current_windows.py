"""The view with the current window of each key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg import sql

from penstock import agg
from penstock.core.errors import Conflict
from penstock.engine.query_registry import Registry
from penstock.log.log import Log
from penstock.stream.windows import SlidingWindow, TumblingWindow, calendar_window
from tests.cycle_driver import CycleDriver
from tests.engine import pipelines
from tests.engine.pipelines import NEVER_IDLE, Bench, stream
from tests.log.logs import opened

SIZE, SLIDE = 60, 10
SLIDING = (SlidingWindow(SIZE * 1_000_000, SLIDE * 1_000_000),)
#: A time long ago, at which a minute begins.
T0 = 1_700_000_040


@pytest.fixture
async def log(database_url: str) -> AsyncIterator[Log]:
    async with opened(database_url) as log:
        yield log


def sliding_partials(key: str, time: int, events: int = 1) -> list[tuple[str, int, int, int]]:
    """The partial aggregates of events at one time: one for each window that contains it."""
    last = time - time % SLIDE
    return [(key, start, events, 0) for start in range(last - SIZE + SLIDE, last + SLIDE, SLIDE)]


def read_current(database_url: str, name: str) -> dict[str | None, int]:
    with psycopg.connect(database_url) as conn:
        view = sql.Identifier("penstock_live", f"{name}_current")
        rows = conn.execute(sql.SQL("SELECT key, count FROM {}").format(view)).fetchall()
    current: dict[str | None, int] = dict(rows)
    assert len(current) == len(rows), "a key has one row"
    return current


async def test_sliding_window_at_a_constant_rate_is_constant(log: Log, database_url: str) -> None:
    """An open window grows until it ends, so that its value would be a sawtooth."""
    driver = await CycleDriver.start(log, "online", windows=SLIDING)
    seen = []
    for second in range(2 * SIZE):
        await driver.cycle(sliding_partials("site", T0 + second), upto=T0 + second)
        seen.append(read_current(database_url, "online")["site"])
    await driver.close()

    # The first minute is not complete. A window ends every ten seconds.
    assert seen[SIZE:] == [SIZE] * SIZE
    assert seen[:SIZE] == [second // SLIDE * SLIDE or second + 1 for second in range(SIZE)]


async def test_new_key_is_shown_at_once_and_absent_key_leaves(log: Log, database_url: str) -> None:
    driver = await CycleDriver.start(log, "online", windows=SLIDING)
    for second in range(0, 3 * SIZE, 3):
        arrived = sliding_partials("guest", T0 + second) if second == 33 else []
        await driver.cycle([*sliding_partials("site", T0 + second), *arrived], upto=T0 + second)
        # The guest is in the windows that end from 40 to 90 seconds; the next one ends at 100.
        assert ("guest" in read_current(database_url, "online")) == (33 <= second < 100), second
    await driver.close()


async def test_event_from_the_future_does_not_hide_the_others(log: Log, database_url: str) -> None:
    now = int(datetime.now(UTC).timestamp())
    driver = await CycleDriver.start(log, "online", windows=SLIDING)
    await driver.cycle([*sliding_partials("site", now - SLIDE), *sliding_partials("clock", now + 10**6)], upto=now)
    assert "site" in read_current(database_url, "online")
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("UPDATE penstock.progress SET high_us = high_us + 1000000000000")
    assert "site" in read_current(database_url, "online")
    await driver.close()


async def test_time_follows_the_clock_while_a_running_query_gets_no_events(log: Log, database_url: str) -> None:
    driver = await CycleDriver.start(log, "online", windows=SLIDING, idle_flush_us=1)
    await driver.cycle(sliding_partials("site", T0), upto=T0)
    assert read_current(database_url, "online") == {}
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("UPDATE penstock.queries SET is_paused = true")
        assert read_current(database_url, "online") == {"site": 1}
        conn.execute("UPDATE penstock.queries SET is_paused = false")
    await driver.cycle([], upto=T0)
    await Registry(log).release_lease(driver.id, driver.fence)
    assert read_current(database_url, "online") == {"site": 1}, "a stopped query shows its last results"
    await driver.close()


async def test_tumbling_window_is_the_one_in_progress(log: Log, database_url: str) -> None:
    now = int(datetime.now(UTC).timestamp())
    minute = now - now % 60
    driver = await CycleDriver.start(log, "orders", windows=(TumblingWindow(60_000_000),))
    await driver.cycle(
        [("ada", minute - 60, 5, 0), ("ada", minute, 2, 0), ("ada", minute + 3600, 9, 0), ("bob", minute - 120, 7, 0)]
    )
    assert read_current(database_url, "orders") == {"ada": 2, "bob": 7}
    await driver.close()


async def test_first_of_several_windows_is_shown(log: Log, database_url: str) -> None:
    windows = (calendar_window("day", "UTC"), TumblingWindow(60_000_000))
    driver = await CycleDriver.start(log, "orders", windows=windows)
    await driver.cycle([("ada", T0, 2, 0)])
    day = T0 - T0 % 86_400
    await driver.cycle([("ada", day, 30, 0)], end=day + 86_400)
    assert read_current(database_url, "orders") == {"ada": 30}
    await driver.close()


async def test_view_is_created_for_a_query_of_an_earlier_version(log: Log, database_url: str) -> None:
    driver = await CycleDriver.start(log, "online", windows=SLIDING)
    await driver.cycle(sliding_partials("site", T0), upto=T0)
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("DROP VIEW penstock_live.online_current")
        conn.execute("UPDATE penstock.queries SET result = result - 'current'")
    await Registry(log).create_tables(driver.tables)
    assert read_current(database_url, "online") == {"site": 1}
    await driver.close()


async def view_columns(log: Log, view: str) -> list[Any]:
    async with log.database.connection() as conn:
        statement = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 ORDER BY attnum"
        return await (await conn.execute(statement, [f"penstock_live.{view}"])).fetchall()


async def test_view_has_the_columns_of_the_live_view_and_is_deleted_with_its_query(log: Log) -> None:
    driver = await CycleDriver.start(log, "online", windows=SLIDING)
    columns = await view_columns(log, "online_current")
    assert columns
    assert columns == await view_columns(log, "online")
    await driver.close()
    await Registry(log).release_lease(driver.id, driver.fence)
    await Registry(log).delete("online")
    assert await view_columns(log, "online_current") == []


@pytest.mark.parametrize(("first", "second"), [("online", "online_current"), ("online_current", "online")])
async def test_query_with_the_name_of_another_view_is_refused(log: Log, first: str, second: str) -> None:
    driver = await CycleDriver.start(log, first)
    with pytest.raises(Conflict, match="would have one name"):
        await CycleDriver.start(log, second)
    assert [query.name for query in await Registry(log).list()] == [first]
    await driver.close()


def test_users_online_of_a_running_query(bench: Bench) -> None:
    bench.queue()
    bench.push([(f"site{n % 2}", {"ts": pipelines.T0 + n, "user": n % 7}) for n in range(95)])
    online = (
        stream()
        .window_sliding(size=60, slide=10, event_time="ts", allowed_lateness_seconds=5, idle_flush_seconds=NEVER_IDLE)
        .aggregate({"users": agg.count_distinct("user"), "count": agg.count()})
    )
    query = bench.run(online, "online", flush=False)
    # The last event is at 94 s, so the newest window that has ended is the one from 30 s to 90 s.
    rows = bench.rows("online_current", "penstock_live")
    assert [(row["key"], row["users"], row["count"]) for row in rows] == [("site0", 7, 30), ("site1", 7, 30)]
    assert {row["window_end"].timestamp() for row in rows} == {pipelines.T0 + 90}
    assert rows[0].keys() == bench.live("online")[0].keys()
    assert query.rows(current=True) == rows, "a query that has ended has rows too"
    live = bench.live("online")
    assert len(live) > len(rows), "without current, a key has several windows"
    assert sorted(query.rows(), key=window_of) == sorted(live, key=window_of)
    with bench.running(online, "online") as running:
        assert [row["users"] for row in running.rows(key="site1", current=True)] == [7]
        of_site1 = sorted((row for row in live if row["key"] == "site1"), key=window_of)
        assert sorted(running.rows(key="site1"), key=window_of) == of_site1


def window_of(row: dict[str, Any]) -> tuple[str, datetime]:
    return row["key"], row["window_start"]
