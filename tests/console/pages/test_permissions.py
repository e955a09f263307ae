"""Pages for keys with few permissions."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from penstock.log.log import Log
from penstock.server.auth.api_keys import ApiKeyStore
from penstock.server.auth.identity import Role
from tests import gate_rows
from tests.console.browser import DESKTOP, VARIANTS, check_fits, check_table_fits_a_phone, open_page, set_variant
from tests.console.conftest import run_with_log
from tests.console.console_process import ConsoleProcess, start_console
from tests.console.queue_actions import create_dead_letters


def _keys(console: ConsoleProcess) -> tuple[str, str]:
    """Create two keys with the role read: one for all queues, one for queues that do not exist."""

    async def make(log: Log) -> tuple[str, str]:
        keys = ApiKeyStore(log.database)
        _, read_key = await keys.create("all", [Role.READ])
        _, limited_key = await keys.create("some", [Role.READ], ["another.*"])
        return str(read_key), str(limited_key)

    return run_with_log(console.database_url, make)


def test_read_key_sees_disabled_buttons(browser: Browser, console: ConsoleProcess, queue: str) -> None:
    gate_rows.insert_gated_query(console.database_url)
    (id,) = create_dead_letters(console, queue, ["no"])
    read_key, limited_key = _keys(console)
    with start_console(console.database_url, ["--require-access"]) as secured:
        with open_page(browser, secured.url) as page:
            page.goto(f"/dead-letters?id={id}")
            page.get_by_label("API key").fill(read_key)
            page.get_by_role("button", name="Sign in").click()
            expect(page.get_by_role("button", name="Redrive")).to_be_disabled()
            expect(page.get_by_role("button", name="Purge")).to_be_disabled()
            page.goto(f"/queues?queue={queue}")
            expect(page.get_by_role("button", name="Push a test event")).to_be_disabled()
            check_table_fits_a_phone(page, "Groups")
            set_variant(page, DESKTOP)
            page.goto(f"/queues?queue={queue}&tab=options&option=retry_limit")
            expect(page.get_by_role("button", name="Change it")).to_be_disabled()
            page.goto(f"/gates?query={gate_rows.QUERY}&key=tenant-1")
            expect(page.get_by_role("button", name="Change the limit")).to_be_disabled()
            # The console has no PENSTOCK_READER_URL.
            page.goto("/sql")
            expect(page.get_by_label("Statements that create the login")).to_contain_text("CREATE ROLE")
            expect(page.get_by_role("button", name="Create the login")).to_have_count(0)
            set_variant(page, VARIANTS[-1])
            check_fits(page)
        with open_page(browser, secured.url) as page:
            page.goto(f"/queues?queue={queue}")
            page.get_by_label("API key").fill(limited_key)
            page.get_by_role("button", name="Sign in").click()
            expect(page.get_by_role("heading", name="There is no such queue")).to_be_visible()
            expect(page.get_by_role("link", name="SQL")).to_have_count(0)
            page.goto(f"/dead-letters?id={id}")
            expect(page.get_by_role("heading", name="There is no such dead letter")).to_be_visible()
            for path in ("/sql", "/gates", f"/gates?query={gate_rows.QUERY}&key=tenant-1"):
                page.goto(path)
                expect(page.get_by_role("heading", name="Not for your key")).to_be_visible()
