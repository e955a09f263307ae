"""What is around every page: navigation, theme, zone, keyboard, and what is shown where there is nothing yet."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browsing import check_everywhere, open_page
from tests.console.running import Running


def test_every_page_opens_from_the_navigation(page: Page) -> None:
    page.goto("/")
    pages = page.get_by_role("navigation", name="Pages")
    titles = [text.splitlines()[-1] for text in pages.get_by_role("listitem").all_inner_texts()]
    assert {"Overview", "Live board", "Queries", "Alerts"} <= set(titles)
    for title in titles:
        pages.get_by_role("link", name=title).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
        expect(pages.get_by_role("link", name=title)).to_have_attribute("aria-current", "page")


@pytest.mark.parametrize("path", ["/", "/live", "/queries", "/alerts"])
def test_where_there_is_nothing_a_page_says_what_to_do_next(page: Page, path: str) -> None:
    page.goto(path)
    expect(page.locator(".ps-empty code:visible").first).to_contain_text("penstock ")
    check_everywhere(page)


def test_the_theme_follows_the_system_until_it_is_chosen(page: Page) -> None:
    page.goto("/")
    html = page.locator("html")
    expect(html).to_have_attribute("data-theme", "light")
    page.emulate_media(color_scheme="dark")
    expect(html).to_have_attribute("data-theme", "dark")
    # System, then the one that the system is not.
    page.get_by_role("button", name="Theme").click()
    expect(html).to_have_attribute("data-theme", "light")
    page.reload()
    expect(html).to_have_attribute("data-theme", "light")
    expect(page.locator("body")).to_have_class(re.compile("body--light"))


def test_a_browser_that_comes_for_the_first_time_tells_its_zone(browser: Browser, console: Running) -> None:
    with open_page(browser, console.url, is_known=False) as page:
        page.goto("/queries")
        expect(page.get_by_role("status")).to_contain_text("Europe/Berlin")


def test_a_command_can_be_copied_with_the_keyboard(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/queries")
    page.get_by_role("button", name="Copy").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".ps-copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").startswith("penstock run ")


def test_pages_come_from_the_console_alone_and_are_framed_by_nobody(console: Running) -> None:
    answer = httpx.get(console.url, follow_redirects=True)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "http://" not in answer.text.replace(console.url, "").replace("http://www.w3.org", "")


def test_an_address_without_a_page_leads_back(page: Page, console: Running) -> None:
    assert httpx.get(f"{console.url}/nowhere?zone=UTC").status_code == 404
    page.goto("/queries?query=<b>nope</b>")
    expect(page.get_by_text("There is no query <b>nope</b>")).to_be_visible()


def test_a_page_of_another_origin_gets_no_connection(console: Running) -> None:
    headers = {"Origin": "https://elsewhere.example", "Connection": "Upgrade", "Upgrade": "websocket"}
    headers |= {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version": "13"}
    answer = httpx.get(f"{console.url}/_nicegui_ws/socket.io/?EIO=4&transport=websocket", headers=headers)
    assert answer.status_code == 403


def test_a_name_that_is_not_this_machines_is_not_answered(console: Running) -> None:
    assert httpx.get(console.url, headers={"Host": "rebound.example"}).status_code == 421
