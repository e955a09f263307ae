"""The editor of views: checks while typing, the preview, and the file to run."""

from __future__ import annotations

import psutil
import pytest
from playwright.sync_api import Browser, Page, expect

from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from penstock.server.auth.api_keys import ApiKeyStore
from penstock.server.auth.identity import Role
from tests.console.browser import check_all_variants, open_page, type_over
from tests.console.conftest import run_with_log
from tests.console.console_process import ConsoleProcess, start_console

LABEL = "Statement of the view"
TOTALS = (
    "CREATE MATERIALIZED VIEW totals WITH (indexes = 'total') AS\n"
    "SELECT customer, count(*) AS orders, sum(amount) AS total\nFROM sales WHERE amount > 0 GROUP BY customer"
)
PATH = "/views?new=1"


@pytest.fixture(scope="module", autouse=True)
def sales(console: ConsoleProcess) -> None:
    async def prepare(log: Log) -> None:
        await log.configure("sales")
        sales = [("ada", 0.1), ("ada", 2500), ("bob <b>", 7), ("bob <b>", -1)]
        await log.push([Batch("sales", [{"data": {"customer": name, "amount": amount}} for name, amount in sales])])

    run_with_log(console.database_url, prepare)


def check_unfocused(page: Page) -> None:
    """Check the page without the cursor of the editor, whose animation never ends."""
    page.get_by_role("heading", level=1).click()
    check_all_variants(page)


def test_new_view_begins_with_a_statement_for_a_queue_that_exists(page: Page) -> None:
    page.goto("/views")
    page.get_by_role("button", name="New view").click()
    plan = page.get_by_role("region", name="Plan", exact=True)
    expect(plan.locator(".ps-flow-node").first).to_contain_text("sales")
    expect(plan).to_contain_text("key, events, last_event")
    expect(page.get_by_text("There is no queue")).to_have_count(0)


def test_plan_follows_the_statement_as_it_is_typed(page: Page) -> None:
    page.goto(PATH)
    type_over(page, LABEL, TOTALS)
    plan = page.get_by_role("region", name="Plan", exact=True)
    expect(plan).to_contain_text("customer, orders, total")
    kinds = [text.splitlines()[0].lower() for text in plan.locator(".ps-flow-node").all_inner_texts()]
    assert kinds == ["queue", "filter", "aggregate", "select"]
    type_over(page, LABEL, TOTALS.replace("sales", "orders"))
    expect(page.get_by_text("There is no queue and no view orders")).to_be_visible()
    check_unfocused(page)


def test_error_shows_its_position_and_disables_the_preview(page: Page) -> None:
    page.goto(PATH)
    type_over(page, LABEL, "SELECT count(*) AS n,\n customer FROM sales")
    expect(page.get_by_role("alert").first).to_contain_text("Line 2, column 2: customer is neither grouped")
    expect(page.get_by_role("button", name="Preview")).to_be_disabled()
    expect(page.get_by_role("region", name="Run it")).to_be_hidden()
    check_unfocused(page)
    type_over(page, LABEL, "CREATE FUNCTION f AS 'os:system'")
    expect(page.get_by_role("alert").first).to_contain_text("only views are written here")


def test_file_to_run_is_downloaded(page: Page) -> None:
    page.goto(PATH)
    type_over(page, LABEL, TOTALS)
    expect(page.get_by_role("region", name="Plan", exact=True)).to_contain_text("customer, orders, total")
    expect(page.get_by_text("penstock sql views.sql")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download views.sql").click()
    assert download.value.path().read_text() == TOTALS
    type_over(page, LABEL, "SELECT customer FROM sales")
    expect(page.get_by_text("To run it, begin with CREATE MATERIALIZED VIEW name AS")).to_be_visible()
    expect(page.get_by_role("region", name="Run it")).to_be_hidden()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_preview_shows_exact_rows(page: Page) -> None:
    page.goto(PATH)
    type_over(page, LABEL, TOTALS)
    expect(page.get_by_role("region", name="Plan", exact=True)).to_contain_text("customer, orders, total")
    page.keyboard.press("Control+Enter")
    rows = page.get_by_role("table", name="Rows of totals")
    expect(rows.get_by_role("row")).to_have_count(3, timeout=150_000)
    expect(rows.get_by_role("row", name="ada")).to_contain_text("2,500.1")
    expect(rows.get_by_role("row", name="bob <b>")).to_contain_text("7.0")
    check_unfocused(page)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_stopped_preview_leaves_no_process(page: Page, console: ConsoleProcess) -> None:
    page.goto(PATH)
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("The preview was stopped")).to_be_visible()
    assert psutil.Process(console.process.pid).children(recursive=True) == []


def test_read_key_cannot_open_the_editor(browser: Browser, console: ConsoleProcess) -> None:
    async def make(log: Log) -> str:
        _, key = await ApiKeyStore(log.database).create("reader of views", [Role.READ])
        return str(key)

    key = run_with_log(console.database_url, make)
    with start_console(console.database_url, ["--require-access"]) as secured, open_page(browser, secured.url) as page:
        page.goto("/views")
        page.get_by_label("API key").fill(key)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("button", name="New view")).to_be_disabled()
        page.goto(PATH)
        expect(page.get_by_text("Your key needs the role admin")).to_be_visible()
        expect(page.get_by_role("textbox", name=LABEL)).to_have_count(0)
