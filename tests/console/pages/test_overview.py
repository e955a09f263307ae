"""The overview: live values, charts, and the list of problems."""

from __future__ import annotations

import re

import psycopg
import pytest
from playwright.sync_api import Page, expect

from penstock import Stream, agg
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from tests.console.browser import check_all_variants, tile_number
from tests.console.conftest import run_with_log
from tests.console.console_process import ConsoleProcess
from tests.console.scripted_query import ScriptedQuery


async def push(log: Log, count: int) -> None:
    await log.push([Batch("orders", [{"key": f"k{i % 10}", "data": {"n": i}} for i in range(count)])])


@pytest.fixture(scope="module", autouse=True)
def traffic(console: ConsoleProcess) -> None:
    async def prepare(log: Log) -> None:
        await log.configure("orders", {"max_depth_events": 1000}, partitioning="hash", partitions=2)
        stream = Stream.from_("orders").window_tumbling(seconds=5).aggregate({"events": agg.count()}).to("orders.5s")
        await log.configure("orders.5s")
        query = await ScriptedQuery.start(log, "sales", stream)
        await query.stop(has_failed=True)
        await push(log, 850)
        async with log.database.connection() as conn:
            await conn.execute(
                "INSERT INTO penstock.dead_letters (queue_id, partition_id, event_offset, group_name, appended_at, "
                "data, stage, error, attempts, failed_at, first_failed_at) SELECT id, 1, 1, 'sales', now(), '{}', "
                "'map', 'boom', 1, now(), now() FROM penstock.queues WHERE name = 'orders'"
            )

    run_with_log(console.database_url, prepare)


def test_push_updates_tiles(page: Page, console: ConsoleProcess) -> None:
    page.goto("/")
    expect(tile_number(page, "Lag")).to_have_text(re.compile(r"\d"))
    before = int(tile_number(page, "Lag").inner_text().replace(",", ""))
    run_with_log(console.database_url, lambda log: push(log, 20))
    expect(tile_number(page, "Lag")).to_have_text(f"{before + 20:,}")
    # A rate needs two samples with a push between them.
    expect(tile_number(page, "Events in")).to_have_text(re.compile(r"[1-9]"))


def test_problems_are_listed_by_severity_with_links(page: Page) -> None:
    page.goto("/")
    issues = page.get_by_role("region", name="Needs attention").get_by_role("listitem")
    expect(issues.first).to_contain_text("Query sales is not running")
    expect(issues.filter(has_text="orders is 8")).to_have_count(1)
    expect(issues.filter(has_text="1 dead letter of sales in orders")).to_have_count(1)
    issues.first.get_by_role("link").click()
    page.wait_for_url("**/queries?query=sales")
    expect(page.get_by_text("no driver")).to_be_visible()


def test_charts_are_drawn_and_page_is_accessible(page: Page) -> None:
    page.goto("/")
    expect(page.get_by_role("img", name=re.compile("over the last 5 minutes"))).to_have_count(4)
    expect(page.locator(".ps-chart svg").first).to_be_visible()
    check_all_variants(page)


def test_gap_in_recorded_vitals_is_a_gap_in_the_chart(page: Page, console: ConsoleProcess) -> None:
    with psycopg.connect(console.database_url) as conn:
        # Half an hour of the last hour, with a gap of ten minutes.
        conn.execute(
            "INSERT INTO penstock.vitals (at, pushed, backlog, dead, firing)"
            " SELECT now() - make_interval(secs => s), 5, s, 0, 0"
            " FROM generate_series(1200, 3000, 10) s WHERE s NOT BETWEEN 1800 AND 2400"
        )
    page.goto("/")
    page.get_by_role("link", name="Last hour").click()
    expect(page.get_by_role("link", name="Last hour")).to_have_attribute("aria-current", "page")
    chart = page.get_by_role("img", name="Lag over the last hour")
    expect(chart.locator("svg")).to_be_visible()
    # A line begins after each gap.
    starts = chart.locator("svg path[fill=none][stroke-linecap=round]").evaluate_all(
        "paths => paths.map((path) => path.getAttribute('d').split('M').length - 1)"
    )
    assert max(starts) >= 2
