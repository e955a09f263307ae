"""The live board with thousands of keys."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from playwright.sync_api import Browser, Page, expect

from penstock import Stream, agg
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from tests.console.browser import VARIANTS, check_all_variants, check_table_fits_a_phone, open_page, tile_number
from tests.console.conftest import run_with_log
from tests.console.console_process import ConsoleProcess
from tests.console.scripted_query import ScriptedQuery

NOW = datetime.now(UTC).replace(second=0, microsecond=0)
WINDOW = (NOW, NOW + timedelta(hours=1))
KEYS = 3000
TOP = f"/item/{KEYS - 1}"


@pytest.fixture(scope="module", autouse=True)
def query(console: ConsoleProcess) -> ScriptedQuery:
    async def prepare(log: Log) -> ScriptedQuery:
        await log.configure("views")
        stream = (
            Stream.from_("views")
            .window_tumbling(seconds=3600)
            .aggregate({"events": agg.count(), "total": agg.sum("ms")})
        )
        query = await ScriptedQuery.start(log, "page 'views' 100%", stream)
        hour = timedelta(hours=1)
        for back in (3, 2, 1):
            past = (WINDOW[0] - back * hour, WINDOW[1] - back * hour)
            await query.cycle({TOP: (10 * back, 1.5)}, past, closes=past[1])
        await query.cycle({f"/item/{i}": (i, i / 4) for i in range(KEYS)}, WINDOW)
        return query

    return run_with_log(console.database_url, prepare)


def test_rows_are_sorted_by_value_and_paged(page: Page) -> None:
    page.goto("/live")
    rows = page.locator(".ps-table tbody tr")
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text(TOP)
    expect(page.get_by_text(f"1–50 of {KEYS:,}")).to_be_visible()
    page.get_by_role("button", name="Next").click()
    expect(rows.first).to_contain_text(f"/item/{KEYS - 51}")
    expect(page.get_by_text(f"51–100 of {KEYS:,}")).to_be_visible()


def test_row_updates_while_window_is_open(page: Page, console: ConsoleProcess, query: ScriptedQuery) -> None:
    async def fill(log: Log) -> None:
        await replace(query, log=log).cycle({"/item/5": (1_000_000, 1.0)}, WINDOW)

    page.goto("/live")
    expect(page.locator(".ps-table tbody tr").first).to_contain_text(TOP)
    run_with_log(console.database_url, fill)
    first = page.locator(".ps-table tbody tr").first
    expect(first).to_contain_text("/item/5")
    expect(first).to_contain_text("1,000,005")


def test_search_escapes_like_patterns(page: Page) -> None:
    page.goto("/live")
    search = page.get_by_label("Search keys")
    search.fill("item/77")
    expect(page.get_by_text("1–11 of 11")).to_be_visible()
    search.fill("%_'")
    expect(page.get_by_text("none of 0")).to_be_visible()


#: Number of searches that wait for a lock.
WAITING = """SELECT count(*) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND datname = current_database() AND query LIKE '%ILIKE%'"""
#: Records each text of an element from now on.
WATCH = """element => {
window.seen = [];
const watch = new MutationObserver(() => window.seen.push(element.textContent));
watch.observe(element, {childList: true, characterData: true, subtree: true}); }"""


def test_last_of_two_concurrent_searches_is_shown(page: Page, console: ConsoleProcess, query: ScriptedQuery) -> None:
    async def fill(log: Log) -> None:
        await replace(query, log=log).cycle({"/item/1998": (1, 1.0)}, WINDOW)

    page.goto("/live")
    search, rows = page.get_by_label("Search keys"), page.locator(".ps-table tbody tr")
    expect(rows).to_have_count(50)
    with (
        psycopg.connect(console.database_url) as lock,
        psycopg.connect(console.database_url, autocommit=True) as observer,
    ):
        # Both searches wait for the lock, so the first one ends after the second one started.
        lock.execute(f"LOCK TABLE penstock.state_{query.id}".encode())
        for waiting, text in enumerate(("item/77", "item/1998"), start=1):
            search.fill(text)
            while observer.execute(WAITING).fetchall() != [(waiting,)]:
                page.wait_for_timeout(20)
    shown = page.get_by_text("1–1 of 1", exact=True)
    expect(shown).to_be_visible()
    shown.evaluate(WATCH)
    for events in ("1,999", "2,000"):
        run_with_log(console.database_url, fill)
        expect(rows.first).to_contain_text(events)
    assert page.evaluate("window.seen") == []


def test_click_on_column_title_sorts_and_reverses(page: Page) -> None:
    page.goto("/live")
    page.get_by_role("button", name="Key").click()
    first = page.locator(".ps-table tbody tr").first
    expect(first).to_contain_text("/item/0")
    page.get_by_role("button", name="Key").click()
    expect(page.get_by_role("columnheader", name="Key")).to_have_attribute("aria-sort", "descending")
    expect(first).to_contain_text("/item/999")


def test_row_shows_history_of_closed_windows(page: Page) -> None:
    page.goto("/live")
    row = page.locator(".ps-table tbody tr", has=page.get_by_text(TOP, exact=True))
    expect(row.locator("polyline")).to_have_count(1)


def test_page_is_accessible_and_fits_the_window(page: Page) -> None:
    page.goto("/live")
    expect(page.locator(".ps-table tbody tr")).to_have_count(50)
    check_all_variants(page)


def test_values_are_exact_with_the_full_value_on_hover(page: Page) -> None:
    page.goto("/live")
    page.get_by_label("Search keys").fill("item/2998")
    cell = page.get_by_role("cell", name="749.50", exact=True)
    expect(cell).to_have_attribute("title", "749.5")
    total = tile_number(page, "total, all keys")
    expect(total).to_have_attribute("title", re.compile(r"^1,124,\d\d\d$"))
    expect(total).to_have_text(str(total.get_attribute("title")))


def test_key_opens_its_chart_windows_and_events(page: Page, console: ConsoleProcess) -> None:
    async def push(log: Log) -> None:
        await log.push([Batch("views", [{"key": TOP, "data": {"ms": 7}}, {"key": "/other", "data": {"ms": 8}}])])

    run_with_log(console.database_url, push)
    page.goto("/live")
    page.get_by_role("link", name=TOP, exact=True).click()
    windows = page.get_by_role("table", name=f"Windows of {TOP}")
    expect(windows.get_by_role("row")).to_have_count(5)
    expect(windows.get_by_role("cell", name="open", exact=True)).to_have_count(1)
    expect(windows.get_by_role("cell", name="749.75", exact=True)).to_be_visible()
    expect(page.get_by_role("img", name=f"total of {TOP} over time").locator("svg")).to_be_visible()
    events = page.get_by_role("region", name="Events")
    expect(events.get_by_text('{"ms":7}')).to_be_visible()
    expect(events.get_by_text('{"ms":8}')).to_have_count(0)
    check_all_variants(page)
    check_table_fits_a_phone(page, f"Windows of {TOP}")


#: The words of an element that are broken over several lines.
BROKEN_WORDS = """element => {
const words = [];
const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) for (const word of texts.currentNode.data.matchAll(/[a-z]+/g)) {
  const range = document.createRange();
  range.setStart(texts.currentNode, word.index);
  range.setEnd(texts.currentNode, word.index + word[0].length);
  if (range.getClientRects().length > 1) words.push(word[0]);
}
return words; }"""


def test_keys_do_not_break_inside_a_word_on_a_phone(
    browser: Browser, console: ConsoleProcess, query: ScriptedQuery
) -> None:
    key = "warehouse-europe-north/international-shipments"

    async def fill(log: Log) -> None:
        await replace(query, log=log).cycle({key: (1, 1.0)}, WINDOW)

    run_with_log(console.database_url, fill)
    with open_page(browser, console.url, VARIANTS[-1]) as page:
        page.goto("/live")
        page.get_by_label("Search keys").fill(key)
        cell = page.get_by_role("cell", name=key)
        expect(cell).to_be_visible()
        assert cell.evaluate(BROKEN_WORDS) == []
        check_table_fits_a_phone(page, f"Open windows of {query.name}")
        # The values are on the screen beside it.
        for value in page.get_by_role("row", name=key).locator(".ps-bar").all():
            expect(value).to_be_in_viewport(ratio=1)
