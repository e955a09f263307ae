"""The list of materialized views, and the page of one view with its operators and rows."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from penstock.log.log import Log
from tests.console.browser import check_all_variants, check_table_fits_a_phone, tile_number
from tests.console.conftest import run_with_log
from tests.console.console_process import ConsoleProcess
from tests.console.scripted_view import ScriptedView

NAME = "totals"
KEYS = 3000
STATEMENTS = """
CREATE MATERIALIZED VIEW totals WITH (changes = 'totals.changes', indexes = 'total; orders, total') AS
SELECT o.customer, count(*) AS orders, sum(p.paid) AS total, max(o.placed) AS last_order
FROM orders o JOIN payments p ON p.order_id = o.id WHERE o.amount > 10 GROUP BY o.customer;
CREATE MATERIALIZED VIEW best AS SELECT customer, total FROM totals ORDER BY total DESC LIMIT 10;
"""


@pytest.fixture(scope="module", autouse=True)
def view(console: ConsoleProcess) -> ScriptedView:
    async def prepare(log: Log) -> ScriptedView:
        for queue in ("orders", "payments", "totals.changes"):
            await log.configure(queue)
        view = await ScriptedView.start(log, STATEMENTS, NAME)
        await ScriptedView.start(log, STATEMENTS, "best")
        await view.store_state(log, 1, 12_000, 300_000)
        await view.store_state(log, 2, KEYS, 90_000)
        await view.cycle(log, {f"customer-{i:04}": (i, f"{i}.25") for i in range(KEYS)})
        return view

    return run_with_log(console.database_url, prepare)


def test_list_shows_sizes_and_links_to_view(page: Page) -> None:
    page.goto("/views")
    row = page.get_by_role("row", name=NAME)
    expect(row).to_contain_text("running")
    expect(row).to_contain_text("15,000")
    expect(row).to_contain_text("381 KiB")
    check_all_variants(page)
    check_table_fits_a_phone(page, "Materialized views")
    row.get_by_role("link", name=NAME).click()
    expect(page.get_by_role("region", name="Rows", exact=True)).to_be_visible()


def test_operators_are_drawn_from_inputs_to_result_with_their_state(page: Page) -> None:
    page.goto(f"/views?view={NAME}")
    nodes = page.locator(".ps-flow-node")
    kinds = [text.splitlines()[0].lower() for text in nodes.all_inner_texts()]
    assert kinds[0] == "queue"
    assert kinds[-3:] == ["aggregate", "select", "result"]
    assert "inner join" in kinds
    expect(nodes.filter(has_text="inner join")).to_contain_text("12,000 rows, 293 KiB")
    expect(nodes.filter(has_text="aggregate")).to_contain_text("3,000 rows, 87.9 KiB")
    expect(nodes.first.get_by_role("link")).to_have_attribute("href", "/queues?queue=orders")


def test_table_shows_key_indexes_changes_queue_and_readers(page: Page) -> None:
    page.goto(f"/views?view={NAME}")
    about = page.get_by_role("region", name="Table", exact=True)
    expect(about).to_contain_text("customer")
    expect(about).to_contain_text("total; orders, total")
    expect(about.get_by_role("link", name="totals.changes")).to_have_attribute("href", "/queues?queue=totals.changes")
    expect(about.get_by_role("link", name="best")).to_have_attribute("href", "/views?view=best")


def test_changed_rows_come_first_and_are_marked(page: Page, console: ConsoleProcess, view: ScriptedView) -> None:
    page.goto(f"/views?view={NAME}")
    rows = page.get_by_role("table", name=f"Rows of {NAME}").locator("tbody tr")
    expect(rows).to_have_count(100)
    expect(page.locator("tr[class^=ps-changed]")).to_have_count(0)

    async def change(log: Log) -> None:
        await view.cycle(log, {"customer-1234": (7, "12345678901234567890.123456"), "new <b>": (1, "0.1")})

    run_with_log(console.database_url, change)
    marked = page.locator("tr[class^=ps-changed]")
    expect(marked).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("customer-1234")
    expect(rows.nth(0)).to_contain_text("12,345,678,901,234,567,890.123456")
    expect(rows.nth(1)).to_contain_text("new <b>")

    async def delete(log: Log) -> None:
        await view.cycle(log, {}, deleted=["new <b>"])

    run_with_log(console.database_url, delete)
    expect(rows.nth(1)).not_to_contain_text("new <b>")
    expect(marked).to_have_count(0)


def test_rows_are_sorted_by_a_column_and_paged(page: Page) -> None:
    page.goto(f"/views?view={NAME}")
    rows = page.get_by_role("table", name=f"Rows of {NAME}").locator("tbody tr")
    page.get_by_role("button", name="orders", exact=True).click()
    expect(rows.first).to_contain_text("customer-2999")
    expect(page.get_by_text("1–100 of 3,000")).to_be_visible()
    page.get_by_role("button", name="Next").click()
    expect(rows.first).to_contain_text("customer-2899")
    expect(page.get_by_text("101–200 of 3,000")).to_be_visible()
    page.get_by_role("button", name="Newest changes first").click()
    expect(page.get_by_role("columnheader", name="Changed")).to_have_attribute("aria-sort", "descending")
    expect(rows.first).to_contain_text("customer-1234")


def test_filter_finds_a_part_of_the_key(page: Page) -> None:
    page.goto(f"/views?view={NAME}")
    search = page.get_by_label("Filter by key")
    search.fill("-299")
    expect(page.get_by_text("1–10 of 10")).to_be_visible()
    page.get_by_role("button", name="customer", exact=True).click()
    row = page.get_by_role("table", name=f"Rows of {NAME}").locator("tbody tr").first
    expect(row).to_contain_text("2,990")
    expect(row).to_contain_text("2,990.25")
    expect(row).to_contain_text("2026-01-15 13:00:00")
    search.fill("%_'")
    expect(page.get_by_text("none of 0")).to_be_visible()


def test_live_board_and_query_lead_to_the_view(page: Page) -> None:
    page.goto(f"/live?query={NAME}")
    expect(page).to_have_url(re.compile(r"/views\?view=totals$"))
    page.get_by_role("link", name="Query and cycles").click()
    expect(page.locator(".ps-flow-node").filter(has_text="inner join")).to_be_visible()
    expect(page.get_by_text("Open windows", exact=True)).to_be_hidden()
    expect(page.get_by_role("link", name="Live board", exact=True)).to_have_count(1)  # that of the navigation
    page.get_by_role("link", name="Rows of the view").click()
    expect(page).to_have_url(re.compile(r"/views\?view=totals$"))


def test_unknown_view_shows_empty_state(page: Page) -> None:
    page.goto("/views?view=<i>nope")
    expect(page.get_by_text("There is no view <i>nope")).to_be_visible()


def test_page_is_accessible_and_fits_the_window(page: Page) -> None:
    page.goto(f"/views?view={NAME}")
    expect(tile_number(page, "Rows")).to_have_text(re.compile(r"3,00\d"))
    check_all_variants(page)
