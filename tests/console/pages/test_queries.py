"""The list of queries, and the page of one query."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from penstock import Stream, agg
from penstock.engine.query_registry import Registry
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from tests.console.browser import check_all_variants, check_table_fits_a_phone
from tests.console.conftest import run_with_log
from tests.console.console_process import ConsoleProcess
from tests.console.scripted_query import ScriptedQuery

NAME = "sales <b>"


@pytest.fixture(scope="module", autouse=True)
def query(console: ConsoleProcess) -> None:
    async def prepare(log: Log) -> None:
        await log.configure("orders")
        await log.configure("orders.1m")
        stream = (
            Stream.from_("orders")
            .filter("amount > 10", name="large")
            .window_tumbling(seconds=60)
            .aggregate({"events": agg.count(), "total": agg.sum("amount")})
            .to("orders.1m")
        )
        query = await ScriptedQuery.start(log, NAME, stream)
        await log.push([Batch("orders", [{"key": "a", "data": {"amount": 20}}] * 50)])
        start = datetime.now(UTC).replace(second=0, microsecond=0)
        await query.cycle({"a": (50, 1000.0)}, (start, start + timedelta(minutes=1)))
        await query.fail("ValueError: <script>alert(1)</script> is no amount")
        await query.cycle({"b": (1, 20.0)}, (start, start + timedelta(minutes=1)))
        async with log.database.connection() as conn:
            await conn.execute(
                "INSERT INTO penstock.client_queries (name, source_queue, sink_queue, config_hash, group_name) "
                "VALUES ('per user <i>', 'orders', NULL, 'h', 'streams.per user')"
            )

    run_with_log(console.database_url, prepare)


async def is_paused(log: Log) -> bool:
    (info,) = await Registry(log).list()
    return info.is_paused


def test_list_links_to_query(page: Page) -> None:
    page.goto("/queries")
    row = page.get_by_role("row", name=re.compile(NAME))
    expect(row).to_contain_text("running")
    row.get_by_role("link", name=NAME).click()
    expect(page.get_by_role("region", name="Pipeline")).to_be_visible()


def test_update_of_the_list_keeps_the_focus(page: Page) -> None:
    page.goto("/queries")
    row = page.get_by_role("row", name=re.compile(NAME))
    link = row.get_by_role("link", name=NAME)
    link.focus()
    before = row.inner_text()
    expect(row).not_to_have_text(before, use_inner_text=True)
    expect(link).to_be_focused()


def test_client_queries_are_listed(page: Page) -> None:
    page.goto("/queries")
    row = page.get_by_role("region", name="Computed by clients").get_by_role("row", name="per user <i>")
    expect(row).to_contain_text("stopped")
    expect(row).to_contain_text("orders")


def test_pipeline_shows_source_steps_and_sink(page: Page) -> None:
    page.goto(f"/queries?query={NAME}")
    nodes = page.locator(".ps-flow-node")
    expect(nodes).to_have_count(5)
    kinds = [text.splitlines()[0].lower() for text in nodes.all_inner_texts()]
    assert kinds == ["queue", "filter", "window", "aggregate", "queue"]
    expect(nodes.nth(1)).to_contain_text("amount > 10")
    expect(nodes.first.get_by_role("link")).to_have_attribute("href", "/queues?queue=orders")
    expect(page.locator(".ps-flow-arrow").first).to_have_text(re.compile(r"^[\d.]+/s$"))


def test_cycles_show_phases_and_errors(page: Page) -> None:
    page.goto(f"/queries?query={NAME}")
    chart = page.get_by_role("img", name="Milliseconds of each phase of the last cycles")
    for part in ("spark", "merge", "append"):
        expect(chart.locator("text", has_text=part).first).to_be_visible()
    failed = page.get_by_role("region", name="Failed cycles")
    expect(failed).to_contain_text("ValueError: <script>alert(1)</script> is no amount")
    rows = page.get_by_role("table", name="Cycles").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("committed")
    expect(rows.nth(2)).to_contain_text("failed")
    check_table_fits_a_phone(page, "Cycles")


def test_query_is_paused_and_resumed(page: Page, console: ConsoleProcess) -> None:
    page.goto(f"/queries?query={NAME}")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".ps-badge:not([role=status] *)").first).to_have_text("paused")
    assert run_with_log(console.database_url, is_paused)
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".ps-badge:not([role=status] *)").first).to_have_text("running")
    assert not run_with_log(console.database_url, is_paused)


def test_unknown_query_shows_empty_state(page: Page) -> None:
    page.goto("/queries?query=nope")
    expect(page.get_by_text("There is no query nope")).to_be_visible()


def test_pages_are_accessible_and_fit_the_window(page: Page) -> None:
    page.goto(f"/queries?query={NAME}")
    expect(page.locator(".ps-flow-node")).to_have_count(5)
    check_all_variants(page)
    page.goto("/queries")
    expect(page.get_by_role("row", name=re.compile(NAME))).to_be_visible()
    check_all_variants(page)
    for table in ("Queries", "Computed by clients"):
        check_table_fits_a_phone(page, table)
