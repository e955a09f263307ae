"""The page of alert rules: create, try on past windows, silence, change and delete."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from penstock.engine.alerts.rule_store import RuleInfo, RuleStore
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from penstock.sinks import Alerts, Sinks
from penstock.stream.rules import above, rule, zscore
from tests.console.browser import DESKTOP, VARIANTS, Variant, check_pages, check_table_fits_a_phone
from tests.console.conftest import run_with_log
from tests.console.console_process import ConsoleProcess

QUEUE = "views-1m"
#: Minutes with two peaks, and a time without windows.
PEAKS = "peaks-1m"
#: A result for which an alert is firing.
NOW = "views-now"
LONG_KEY = "warehouse-europe-north/international-shipments"
MESSAGE = "shop.example: views is 101.58 again, where 100.60 is expected"
BEGIN = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module", autouse=True)
def results(console: ConsoleProcess) -> None:
    """Minutes of two sites, one with a surge, and a rule on them."""

    async def make(log: Log) -> None:
        await log.configure(QUEUE)
        surge = [100, 104, 98, 101, 97, 103, 940, 1010, 99, 100]
        for key, values in (("shop", surge), ("blog", [10] * 10)):
            windows = [
                {"views": value, "window_end": (BEGIN + timedelta(minutes=n)).isoformat()}
                for n, value in enumerate(values)
            ]
            await log.push([Batch(QUEUE, [{"key": key, "data": each} for each in windows])])
        await log.configure("alerts")
        alert = {"rule": "surge", "key": "shop.example", "state": "cleared", "message": MESSAGE, "value": 101.58}
        await log.push([Batch("alerts", [{"key": "shop.example", "data": alert}])])
        await RuleStore(log).save(rule("surge", on=QUEUE, value="views", when=zscore(3, over=5)))
        await log.configure(PEAKS)
        peaks = [
            {"views": value, "window_end": (BEGIN + timedelta(minutes=n)).isoformat()}
            for n, value in ((0, 1), (1, 9), (2, 9), (3, 1), (4, 1), (5, 9), (6, 9), (7, 1), (30, 1), (31, 1))
        ]
        await log.push([Batch(PEAKS, [{"key": "shop", "data": each} for each in peaks])])
        await RuleStore(log).save(rule("peaks", on=PEAKS, value="views", when=above(5)))
        await log.configure(NOW)
        await log.push([Batch(NOW, [{"key": LONG_KEY, "data": {"views": 9}}])])
        now = rule("now", on=NOW, value="views", when=above(5), alerts="alerts-now")
        await RuleStore(log).save(now)
        await Sinks(log=log).add(NOW, Alerts(now)).run(idle_seconds=0.2)

    run_with_log(console.database_url, make)


def _rules(console: ConsoleProcess) -> dict[str, RuleInfo]:
    async def read(log: Log) -> dict[str, RuleInfo]:
        return {info.rule.name: info for info in await RuleStore(log).all()}

    return run_with_log(console.database_url, read)


def fill(page: Page, label: str, text: str) -> None:
    field = page.get_by_label(label, exact=True)
    field.fill(text)
    field.press("Tab")


def test_a_rule_is_tried_created_silenced_and_deleted(page: Page, console: ConsoleProcess) -> None:
    page.goto("/alerts")
    page.get_by_role("link", name="New rule").click()
    fill(page, "Name", "hot")
    fill(page, "Queue of the results", QUEUE)
    expect(page.get_by_text("Fields of the results: ")).to_contain_text("views")
    fill(page, "Field", "viewz")
    fill(page, "Limit", "500")
    page.get_by_role("button", name="Try on past windows").click()
    expect(page.locator(".ps-field-error", has_text="did you mean 'views'?")).to_be_visible()
    page.get_by_role("button", name="Save").click()
    dialog = page.get_by_role("dialog", name="Save hot with a field that no result has?")
    expect(dialog).to_contain_text("did you mean 'views'?")
    dialog.get_by_role("button", name="Cancel").click()
    assert "hot" not in _rules(console)
    fill(page, "Field", "views")
    page.get_by_role("button", name="Try on past windows").click()
    expect(page.get_by_text("the rule would have fired once")).to_be_visible()
    expect(page.get_by_role("cell", name="shop: views is 940, above 500")).to_be_visible()
    expect(page.get_by_role("img", name="Past values and thresholds")).to_be_visible()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("button", name="Delete")).to_be_visible()
    assert _rules(console)["hot"].rule.condition.limit == 500

    page.get_by_role("button", name="Silence", exact=True).click()
    expect(page.get_by_text("Silent until")).to_be_visible()
    assert _rules(console)["hot"].silenced_until is not None
    page.get_by_role("button", name="End the silence").click()
    expect(page.get_by_role("button", name="End the silence")).to_have_count(0)

    fill(page, "Limit", "2000")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("the rule would have fired 0 times")).to_be_visible()
    assert _rules(console)["hot"].rule.condition.limit == 2000
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("link", name="New rule")).to_be_visible()
    assert sorted(_rules(console)) == ["now", "peaks", "surge"]


def test_a_rule_with_an_unknown_field_is_saved_if_wanted(page: Page, console: ConsoleProcess) -> None:
    page.goto("/alerts?new=1")
    fill(page, "Name", "later")
    fill(page, "Queue of the results", QUEUE)
    fill(page, "Field", "visits")
    fill(page, "Limit", "5")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("dialog").get_by_role("button", name="Save anyway").click()
    expect(page.get_by_role("button", name="Delete")).to_be_visible()
    assert _rules(console)["later"].rule.value == "visits"
    _delete(console, "later")


def test_a_rule_keeps_its_query_of_open_windows_while_its_kind_allows_it(page: Page, console: ConsoleProcess) -> None:
    page.goto("/alerts?new=1")
    fill(page, "Name", "early")
    fill(page, "Queue of the results", QUEUE)
    fill(page, "Field", "views")
    fill(page, "Limit", "5000")
    fill(page, "Query whose open windows count too", "views_1m")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("button", name="Delete")).to_be_visible()
    assert _rules(console)["early"].rule.live == "views_1m"

    message = page.get_by_text("Open windows of views_1m do not count then")
    _choose_kind(page, "is below a limit")
    expect(message).to_be_visible()
    _choose_kind(page, "is above a limit")
    expect(message).to_be_hidden()
    fill(page, "Limit", "500")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("the rule would have fired once")).to_be_visible()
    assert _rules(console)["early"].rule.condition.limit == 500
    assert _rules(console)["early"].rule.live == "views_1m"
    _delete(console, "early")


def _choose_kind(page: Page, kind: str) -> None:
    page.get_by_role("combobox", name="The rule fires when the field").click()
    page.get_by_role("option", name=kind).click()


def _delete(console: ConsoleProcess, rule: str) -> None:
    async def delete(log: Log) -> None:
        await RuleStore(log).delete(rule)

    run_with_log(console.database_url, delete)


def test_the_chart_of_a_trial_has_gaps_between_alerts_and_where_windows_are_missing(page: Page) -> None:
    page.goto("/alerts?rule=peaks")
    expect(page.get_by_text("the rule would have fired 2 times")).to_be_visible()
    for colour in (5, 1):
        line = page.locator(f"path[stroke='var(--ps-series-{colour})']").first
        expect(line).to_have_attribute("d", re.compile("^M[^M]*M[^M]*$"))


def test_recent_alerts_show_their_message_and_all_tables_fit_a_phone(page: Page) -> None:
    page.goto("/alerts")
    expect(page.get_by_role("cell", name=MESSAGE)).to_be_visible()
    expect(page.get_by_role("cell", name="101.58", exact=True)).to_be_visible()
    for table in ("Firing alerts", "Rules", "Recent alerts"):
        check_table_fits_a_phone(page, table)
    page.goto("/alerts?rule=peaks")
    check_table_fits_a_phone(page, "Alerts on past windows")


@pytest.mark.parametrize("variant", [DESKTOP, VARIANTS[-1]], ids=lambda variant: variant.name)
def test_pages_are_accessible_and_fit_the_window(page: Page, variant: Variant) -> None:
    check_pages(page, variant, ["/alerts", "/alerts?rule=surge", "/alerts?new=1"])
