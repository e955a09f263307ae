"""What is around every page: navigation, theme, zone, signing in and out."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.console.browsing import check_accessible, check_fits


def test_every_page_opens_from_the_navigation(page: Page) -> None:
    page.goto("/")
    titles = page.get_by_role("navigation", name="Pages").get_by_role("listitem").all_inner_texts()
    for title in [text.splitlines()[-1] for text in titles]:
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=title).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(title)


def test_the_frame_is_accessible_and_fits_everywhere(any_page: Page) -> None:
    any_page.goto("/")
    expect(any_page.get_by_role("heading", level=1)).to_have_text("Overview")
    check_accessible(any_page)
    check_fits(any_page)
