"""Layout of all pages: navigation, theme, time zone, security headers and empty states."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from penstock.console.pages.first_query import QUERY_COMMAND
from tests.console.browser import check_all_variants, open_page
from tests.console.console_process import ConsoleProcess


def test_navigation_opens_every_page(page: Page) -> None:
    page.goto("/")
    pages = page.get_by_role("navigation", name="Pages")
    titles = [text.splitlines()[-1] for text in pages.get_by_role("listitem").all_inner_texts()]
    assert {"Overview", "Live board", "Queries", "Alerts"} <= set(titles)
    for title in titles:
        pages.get_by_role("link", name=title).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
        expect(pages.get_by_role("link", name=title)).to_have_attribute("aria-current", "page")


@pytest.mark.parametrize("path", ["/", "/live", "/queries"])
def test_empty_page_shows_next_command(page: Page, path: str) -> None:
    page.goto(path)
    expect(page.locator(".ps-empty code:visible").first).to_contain_text("penstock ")
    check_all_variants(page)


def test_empty_page_of_alerts_offers_a_new_rule(page: Page) -> None:
    page.goto("/alerts")
    expect(page.locator(".ps-empty:visible")).to_contain_text("Create one above")
    check_all_variants(page)
    page.get_by_role("link", name="New rule").click()
    expect(page).to_have_url(re.compile(r"/alerts\?new=1$"))


def test_theme_follows_system_until_chosen(page: Page) -> None:
    page.goto("/")
    html = page.locator("html")
    expect(html).to_have_attribute("data-theme", "light")
    page.emulate_media(color_scheme="dark")
    expect(html).to_have_attribute("data-theme", "dark")
    # The first click chooses the theme that differs from the system.
    page.get_by_role("button", name="Theme").click()
    expect(html).to_have_attribute("data-theme", "light")
    page.reload()
    expect(html).to_have_attribute("data-theme", "light")
    expect(page.locator("body")).to_have_class(re.compile("body--light"))


def test_first_request_detects_time_zone(browser: Browser, console: ConsoleProcess) -> None:
    with open_page(browser, console.url, is_known=False) as page:
        page.goto("/queries")
        expect(page.get_by_role("status")).to_contain_text("Europe/Berlin")


def test_command_is_copied_with_keyboard(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/queries")
    page.get_by_role("button", name="Copy").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".ps-copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == QUERY_COMMAND


def test_pages_load_only_own_resources_and_deny_framing(console: ConsoleProcess) -> None:
    response = httpx.get(console.url, follow_redirects=True)
    policy = response.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "http://" not in response.text.replace(console.url, "").replace("http://www.w3.org", "")


def test_unknown_path_is_not_found(page: Page, console: ConsoleProcess) -> None:
    assert httpx.get(f"{console.url}/nowhere?zone=UTC").status_code == 404
    page.goto("/queries?query=<b>nope</b>")
    expect(page.get_by_text("There is no query <b>nope</b>")).to_be_visible()


def test_websocket_of_another_origin_is_refused(console: ConsoleProcess) -> None:
    headers = {"Origin": "https://elsewhere.example", "Connection": "Upgrade", "Upgrade": "websocket"}
    headers |= {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version": "13"}
    response = httpx.get(f"{console.url}/_nicegui_ws/socket.io/?EIO=4&transport=websocket", headers=headers)
    assert response.status_code == 403


def test_unknown_host_is_refused(console: ConsoleProcess) -> None:
    assert httpx.get(console.url, headers={"Host": "rebound.example"}).status_code == 421
