"""Pages of gates: limits, pauses and holds."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from penstock.engine.gates.gate_admin import GateAdmin, GateInfo
from penstock.log.log import Log
from tests import gate_rows
from tests.console.browser import (
    DESKTOP,
    VARIANTS,
    Variant,
    check_dialog,
    check_pages,
    check_table_fits_a_phone,
    tile_number,
)
from tests.console.conftest import run_with_log
from tests.console.console_process import ConsoleProcess


@pytest.fixture(scope="module", autouse=True)
def gated_query(console: ConsoleProcess) -> None:
    gate_rows.insert_gated_query(console.database_url)


def _gate(console: ConsoleProcess, key: str) -> GateInfo:
    async def read(log: Log) -> GateInfo:
        (found,) = await GateAdmin(log.database).list(gate_rows.QUERY, key)
        return found

    return run_with_log(console.database_url, read)


def test_gate_limit_is_changed_and_key_is_paused_and_resumed(page: Page, console: ConsoleProcess) -> None:
    page.goto("/gates?waiting=1")
    row = page.get_by_role("row", name="tenant-7")
    expect(row).to_contain_text("waiting")
    expect(page.get_by_role("row", name="tenant-1")).to_have_count(0)
    row.get_by_role("link").click()
    page.get_by_label("Burst").fill("350")
    page.get_by_label("Burst").press("Tab")
    page.get_by_role("button", name="Change the limit").click()
    expect(page.get_by_role("cell", name="burst 350")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_hidden()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.get_by_role("cell", name="paused")).to_be_visible()
    expect(page.get_by_role("button", name="Pause")).to_be_hidden()
    gate = _gate(console, "tenant-7")
    assert (gate.limit, gate.rate, gate.paused) == (350, 0.001, True)

    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("cell", name="paused")).to_have_count(0)
    page.get_by_role("button", name="Hold", exact=True).click()
    expect(page.get_by_role("cell", name="on hold")).to_be_visible()
    assert _gate(console, "tenant-1").limit == 200


def test_tiles_agree_with_rows(page: Page) -> None:
    page.goto("/gates")
    for tile, state in (("Waiting", "waiting"), ("Paused or on hold", "on hold")):
        rows = page.get_by_role("cell", name=state, exact=True)
        expect(tile_number(page, tile)).to_have_text(str(rows.count()))
    expect(tile_number(page, "Keys")).to_have_text("2")


def test_query_without_windows_has_no_link_to_the_live_board(page: Page) -> None:
    page.goto(f"/queries?query={gate_rows.QUERY}")
    expect(page.get_by_role("region", name="Pipeline")).to_be_visible()
    expect(page.locator("#main").get_by_role("link", name="Live board")).to_be_hidden()


@pytest.mark.parametrize("variant", [DESKTOP, VARIANTS[-1]], ids=lambda variant: variant.name)
def test_pages_are_accessible_and_fit_the_window(page: Page, variant: Variant) -> None:
    paths = [f"/gates?query={gate_rows.QUERY}&key=tenant-7", *(["/gates"] if variant is DESKTOP else [])]
    check_pages(page, variant, paths)


def test_tables_fit_a_phone(page: Page) -> None:
    page.goto("/gates")
    check_table_fits_a_phone(page, "Gates by key")
    page.goto(f"/gates?query={gate_rows.QUERY}&key=tenant-7")
    check_table_fits_a_phone(page, "Gates")


def test_dialog_is_accessible_and_fits_the_window(page: Page) -> None:
    page.goto(f"/gates?query={gate_rows.QUERY}&key=tenant-1")
    check_dialog(page, "Pause")
