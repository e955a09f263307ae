"""The editor of views: checks while typing, the preview, and the file to run."""

from __future__ import annotations

import psutil
import pytest
from playwright.sync_api import Browser, Page, expect

from penstock.engine.query_registry import Registry
from penstock.engine.stored.stored_statements import (
    StoredStatement,
    create_stored_statement,
    find_stored_statement,
    list_stored_statements,
    mark_seen,
    set_error,
)
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from penstock.server.auth.api_keys import ApiKeyStore
from penstock.server.auth.audit import AuditLog
from penstock.server.auth.identity import Role
from tests.console.browser import check_all_variants, open_page, type_over
from tests.console.conftest import run_with_log
from tests.console.console_process import ConsoleProcess, start_console
from tests.console.scripted_view import ScriptedView

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


def test_created_view_is_stored_and_names_the_command_that_runs_it(page: Page, console: ConsoleProcess) -> None:
    page.goto(PATH)
    type_over(page, LABEL, TOTALS)
    expect(page.get_by_role("region", name="Plan", exact=True)).to_contain_text("customer, orders, total")
    page.get_by_role("button", name="Create").click()
    page.wait_for_url("**/views?view=totals")
    statement = page.get_by_role("region", name="Statement", exact=True)
    expect(statement).to_contain_text("GROUP BY customer")
    expect(statement.get_by_text("no process runs stored views")).to_be_visible()
    expect(statement.get_by_text("penstock sql --stored", exact=True)).to_be_visible()
    stored = run_with_log(console.database_url, lambda log: list_stored_statements(log.database))
    assert [(each.name, each.statement) for each in stored] == [("totals", TOTALS)]
    check_all_variants(page)

    page.goto(PATH)
    type_over(page, LABEL, TOTALS)
    expect(page.get_by_text("A query totals exists")).to_be_visible()
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_text("there is a query 'totals' already", exact=False)).to_be_visible()
    page.goto("/views")
    page.get_by_role("link", name="totals was created and has not run yet").click()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("The view waits to be deleted")).to_be_visible()
    run_with_log(console.database_url, lambda log: Registry(log).delete("totals"))  # as a process does
    page.wait_for_url("**/views")


def test_page_of_a_created_view_shows_why_it_does_not_run_and_opens_when_it_has(
    page: Page, console: ConsoleProcess
) -> None:
    text = TOTALS.replace("totals", "later")

    async def create(log: Log) -> StoredStatement:
        await create_stored_statement(log.database, "later", text, "")
        (stored,) = await list_stored_statements(log.database)
        return stored

    async def fail(log: Log) -> None:
        await mark_seen(log.database, [stored])
        await set_error(log.database, stored, "there is no queue 'sales'")

    stored = run_with_log(console.database_url, create)
    page.goto("/views?view=later")
    run_with_log(console.database_url, fail)
    expect(page.get_by_role("alert").get_by_text("there is no queue 'sales'")).to_be_visible()
    run_with_log(console.database_url, lambda log: ScriptedView.start(log, text, "later"))
    expect(page.get_by_role("region", name="Operators", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="Statement", exact=True)).to_contain_text("GROUP BY customer")


def test_statements_of_several_views_are_not_created(page: Page) -> None:
    page.goto(PATH)
    type_over(page, LABEL, f"{TOTALS}; {TOTALS.replace('totals', 'others')}")
    expect(page.get_by_role("heading", name="others")).to_be_visible()
    expect(page.get_by_role("button", name="Create")).to_be_disabled()


def test_admin_key_creates_a_view_with_an_entry_in_the_audit_log(browser: Browser, console: ConsoleProcess) -> None:
    key_id, key = _create_key(console, "maker of views", Role.ADMIN)
    with start_console(console.database_url, ["--require-access"]) as secured, open_page(browser, secured.url) as page:
        page.goto(PATH)
        page.get_by_label("API key").fill(key)
        page.get_by_role("button", name="Sign in").click()
        page.goto(PATH)
        type_over(page, LABEL, TOTALS.replace("totals", "audited"))
        page.get_by_role("button", name="Create").click()
        page.wait_for_url("**/views?view=audited")
    stored = run_with_log(console.database_url, lambda log: find_stored_statement(log.database, "audited"))
    assert stored is not None
    assert stored.author == key_id
    (entry,) = run_with_log(console.database_url, lambda log: AuditLog(log.database).read(10, who=key_id))
    assert (entry.action, entry.subject) == ("create a view", "audited")


def _create_key(console: ConsoleProcess, name: str, role: Role) -> tuple[str, str]:
    """Return the id of a new key, and the key."""
    created, key = run_with_log(console.database_url, lambda log: ApiKeyStore(log.database).create(name, [role]))
    return created.id, str(key)


def test_read_key_neither_opens_the_editor_nor_deletes_a_view(browser: Browser, console: ConsoleProcess) -> None:
    _, key = _create_key(console, "reader of views", Role.READ)
    run_with_log(
        console.database_url,
        lambda log: create_stored_statement(log.database, "kept", TOTALS.replace("totals", "kept"), ""),
    )
    with start_console(console.database_url, ["--require-access"]) as secured, open_page(browser, secured.url) as page:
        page.goto("/views")
        page.get_by_label("API key").fill(key)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("button", name="New view")).to_be_disabled()
        page.goto(PATH)
        expect(page.get_by_text("Your key needs the role admin")).to_be_visible()
        expect(page.get_by_role("textbox", name=LABEL)).to_have_count(0)
        page.goto("/views?view=kept")
        expect(page.get_by_role("button", name="Delete")).to_be_disabled()
