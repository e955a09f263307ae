"""The live board: open windows key by key, thousands of them, while they fill."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from playwright.sync_api import Page, expect

from penstock import Stream, agg
from penstock.log.log import Log
from tests.console.browsing import check_everywhere
from tests.console.conftest import arrange
from tests.console.driving import Driven
from tests.console.running import Running

NOW = datetime.now(UTC).replace(second=0, microsecond=0)
WINDOW = (NOW, NOW + timedelta(hours=1))
KEYS = 3000
TOP = f"/item/{KEYS - 1}"


@pytest.fixture(scope="module", autouse=True)
def query(console: Running) -> Driven:
    async def prepare(log: Log) -> Driven:
        await log.configure("views")
        stream = (
            Stream.from_("views")
            .window_tumbling(seconds=3600)
            .aggregate({"events": agg.count(), "total": agg.sum("ms")})
        )
        query = await Driven.start(log, "page 'views' 100%", stream)
        hour = timedelta(hours=1)
        for back in (3, 2, 1):
            past = (WINDOW[0] - back * hour, WINDOW[1] - back * hour)
            await query.cycle({TOP: (10 * back, 1.5)}, past, closes=past[1])
        await query.cycle({f"/item/{i}": (i, i / 4) for i in range(KEYS)}, WINDOW)
        return query

    return arrange(console.database_url, prepare)


def test_the_top_keys_come_first_and_the_rest_by_page(page: Page) -> None:
    page.goto("/live")
    rows = page.locator(".ps-table tbody tr")
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text(TOP)
    expect(page.get_by_text(f"1–50 of {KEYS:,}")).to_be_visible()
    page.get_by_role("button", name="Next").click()
    expect(rows.first).to_contain_text(f"/item/{KEYS - 51}")
    expect(page.get_by_text(f"51–100 of {KEYS:,}")).to_be_visible()


def test_numbers_move_while_a_window_fills(page: Page, console: Running, query: Driven) -> None:
    async def fill(log: Log) -> None:
        await replace(query, log=log).cycle({"/item/5": (1_000_000, 1.0)}, WINDOW)

    page.goto("/live")
    expect(page.locator(".ps-table tbody tr").first).to_contain_text(TOP)
    arrange(console.database_url, fill)
    first = page.locator(".ps-table tbody tr").first
    expect(first).to_contain_text("/item/5")
    expect(first).to_contain_text("1,000,005")


def test_keys_are_searched_whatever_is_in_them(page: Page) -> None:
    page.goto("/live")
    search = page.get_by_label("Search keys")
    search.fill("item/77")
    expect(page.get_by_text("1–11 of 11")).to_be_visible()
    search.fill("%_'")
    expect(page.get_by_text("none of 0")).to_be_visible()


#: How many searches wait for a lock.
WAITING = """SELECT count(*) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND datname = current_database() AND query LIKE '%ILIKE%'"""
#: Keeps every text that an element has from now on.
WATCH = """place => { window.seen = []; const watch = new MutationObserver(() => window.seen.push(place.textContent));
watch.observe(place, {childList: true, characterData: true, subtree: true}); }"""


def test_the_last_of_two_quick_searches_is_the_one_that_is_shown(page: Page, console: Running, query: Driven) -> None:
    async def fill(log: Log) -> None:
        await replace(query, log=log).cycle({"/item/1998": (1, 1.0)}, WINDOW)

    page.goto("/live")
    search, rows = page.get_by_label("Search keys"), page.locator(".ps-table tbody tr")
    expect(rows).to_have_count(50)
    with psycopg.connect(console.database_url) as lock, psycopg.connect(console.database_url, autocommit=True) as look:
        # The first is not found before the second is asked for.
        lock.execute(f"LOCK TABLE penstock.state_{query.id}".encode())
        for waiting, text in enumerate(("item/77", "item/1998"), start=1):
            search.fill(text)
            while look.execute(WAITING).fetchall() != [(waiting,)]:
                page.wait_for_timeout(20)
    shown = page.get_by_text("1–1 of 1", exact=True)
    expect(shown).to_be_visible()
    shown.evaluate(WATCH)
    for events in ("1,999", "2,000"):
        arrange(console.database_url, fill)
        expect(rows.first).to_contain_text(events)
    assert page.evaluate("window.seen") == []


def test_a_column_sorts_by_its_title_and_back(page: Page) -> None:
    page.goto("/live")
    page.get_by_role("button", name="Key").click()
    first = page.locator(".ps-table tbody tr").first
    expect(first).to_contain_text("/item/0")
    page.get_by_role("button", name="Key").click()
    expect(page.get_by_role("columnheader", name="Key")).to_have_attribute("aria-sort", "descending")
    expect(first).to_contain_text("/item/999")


def test_a_key_shows_the_course_of_its_closed_windows(page: Page) -> None:
    page.goto("/live")
    row = page.locator(".ps-table tbody tr", has=page.get_by_text(TOP, exact=True))
    expect(row.locator("polyline")).to_have_count(1)


def test_it_is_usable_at_every_size_and_in_every_theme(page: Page) -> None:
    page.goto("/live")
    expect(page.locator(".ps-table tbody tr")).to_have_count(50)
    check_everywhere(page)
