"""The SQL page: results, errors, examples and the setup of the login."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.db.readonly_login import render_reader_role
from tests import gate_rows
from tests.console.browser import (
    VARIANTS,
    Variant,
    check_all_variants,
    check_pages,
    check_table_fits_a_phone,
    open_page,
    type_over,
)
from tests.console.console_process import ConsoleProcess, start_console
from tests.console.queue_actions import pop
from tests.log.lossy_proxy import proxied
from tests.servers import ROLE, TEMPLATE, Server

_READER = "reader_of_console_tests"


@pytest.fixture(scope="module")
def console(pg18: Server) -> Iterator[ConsoleProcess]:
    """A console on a database with a gated query and the login for SQL."""
    with pg18.fresh_database(TEMPLATE) as url:
        name = str(conninfo_to_dict(url)["dbname"])
        with pg18.superuser(name) as conn:
            conn.execute(render_reader_role(owner=ROLE, database=name, reader=_READER).encode())
        gate_rows.insert_gated_query(url)
        with start_console(url, environ={"PENSTOCK_READER_URL": make_conninfo(url, user=_READER)}) as running:
            yield running
    with pg18.superuser() as conn:
        conn.execute(f"DROP ROLE {_READER}".encode())


@pytest.fixture
def console_of_a_remote_server(console: ConsoleProcess, tmp_path: Path) -> Iterator[ConsoleProcess]:
    """A console whose statements go through a proxy, so that it cannot see the process of PostgreSQL."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    proxy = proxied(make_conninfo(console.database_url, user=_READER), tmp_path)
    _, through = asyncio.run_coroutine_threadsafe(proxy.__aenter__(), loop).result()
    try:
        with start_console(console.database_url, environ={"PENSTOCK_READER_URL": through}) as running:
            yield running
    finally:
        asyncio.run_coroutine_threadsafe(proxy.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_administrators_see_that_memory_is_not_limited(
    page: Page, browser: Browser, console_of_a_remote_server: ConsoleProcess
) -> None:
    message = "The memory of a statement is not limited"
    page.goto("/sql")
    expect(page.get_by_role("button", name="Run")).to_be_visible()
    expect(page.get_by_text(message)).to_have_count(0)
    with open_page(browser, console_of_a_remote_server.url) as other:
        other.goto("/sql")
        expect(other.get_by_text(message)).to_be_visible()


def test_statement_shows_table_chart_and_csv(page: Page, queue: str) -> None:
    page.goto("/sql")
    type_over(page, "SQL statement", "SELECT queue, events FROM depth UNION ALL VALUES ('x', 7)")
    page.keyboard.press("Control+Enter")

    table = page.get_by_role("table", name="Result")
    expect(table.get_by_role("cell", name=queue)).to_be_visible()
    expect(page.get_by_text("rows in")).to_be_visible()
    expect(page.get_by_role("img", name="events by queue").locator("path").first).to_be_attached()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    assert f"{queue},10" in download.value.path().read_text()
    check_table_fits_a_phone(page, "Result")

    type_over(page, "SQL statement", "SELECT '2026-01-15 12:00:00+00'::timestamptz AS noon")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("cell", name="2026-01-15 13:00:00")).to_be_visible()


def test_statement_that_writes_or_is_invalid_shows_error(page: Page, console: ConsoleProcess, queue: str) -> None:
    page.goto("/sql")
    for statement, message in (
        ("DELETE FROM penstock.queues", "syntax error"),
        ("SELECT * FROM penstock.api_keys", "permission denied"),
        ("SELECT nonsense FROM lag", "Line 1, column 8"),
    ):
        type_over(page, "SQL statement", statement)
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("alert").filter(has_text=message)).to_be_visible()
    assert len(pop(console, queue)) == 10


def test_running_statement_is_stopped(page: Page) -> None:
    page.goto("/sql")
    type_over(page, "SQL statement", "SELECT pg_sleep(9)")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("alert").filter(has_text="the statement was stopped")).to_be_visible()
    expect(page.get_by_role("button", name="Run")).to_be_enabled()


def test_example_statement_is_inserted_and_run(page: Page) -> None:
    page.goto("/sql")
    page.get_by_label("Examples").click()
    page.get_by_role("option", name="Keys that wait at a gate").click()
    expect(page.get_by_role("textbox", name="SQL statement")).to_contain_text("penstock.gates")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("cell", name="tenant-7")).to_be_visible()


def test_statement_is_saved_shared_and_deleted(page: Page) -> None:
    page.goto("/sql")
    type_over(page, "SQL statement", "SELECT 40 + 2 AS answer")
    page.get_by_role("button", name="Save").click()
    dialog = page.get_by_role("dialog", name="Save the statement")
    dialog.get_by_label("Name").fill("the answer")
    dialog.get_by_role("button", name="Save").click()
    # The address of a saved statement opens its result.
    page.wait_for_url("**/sql?saved=the+answer")
    expect(page.get_by_role("cell", name="42")).to_be_visible()
    check_all_variants(page)
    page.get_by_role("button", name="Delete the answer").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.wait_for_url("**/sql")
    page.goto("/sql?saved=the+answer")
    expect(page.get_by_role("alert").filter(has_text="no statement is saved as the answer")).to_be_visible()


def test_link_contains_the_statement_and_does_not_run_it(page: Page) -> None:
    page.goto("/sql")
    page.evaluate("penstock.copy = (text) => { window.copied = text; }")
    type_over(page, "SQL statement", "SELECT 1 + 1 AS two")
    page.get_by_role("button", name="Copy link").click()
    page.wait_for_function("window.copied")
    page.goto(page.evaluate("window.copied"))
    expect(page.get_by_role("textbox", name="SQL statement")).to_contain_text("SELECT 1 + 1 AS two")
    expect(page.get_by_role("table", name="Result")).to_have_count(0)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_pages_are_accessible_and_fit_the_window(page: Page, variant: Variant) -> None:
    check_pages(page, variant, ["/sql"])
