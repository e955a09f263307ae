"""Pages in Chromium for tests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

#: Pages poll every second, and the machine may be busy.
TIMEOUT_MS = 40_000
expect.set_options(timeout=TIMEOUT_MS)


@dataclass(frozen=True)
class Variant:
    """A window size and a system theme."""

    name: str
    width: int
    height: int
    scheme: str


VARIANTS = (
    Variant("desktop-light", 1440, 900, "light"),
    Variant("desktop-dark", 1440, 900, "dark"),
    Variant("phone-light", 390, 844, "light"),
    Variant("phone-dark", 390, 844, "dark"),
)
DESKTOP = VARIANTS[0]
#: The accessible name of the editor on a page, by the start of its path.
_EDITOR_LABELS = {"/sql": "SQL statement", "/dead-letters": "Data of the event, JSON"}


@contextmanager
def open_page(browser: Browser, base_url: str, variant: Variant = DESKTOP, *, is_known: bool = True) -> Iterator[Page]:
    """Open a page in a new browser context, and fail if the browser reports an error.

    With ``is_known``, the context has the time zone cookie already.
    """
    with new_context(browser, base_url) as context:
        if is_known:
            set_time_zone(context, base_url)
        with watched_page(context, base_url) as page:
            set_variant(page, variant)
            yield page


@contextmanager
def new_context(browser: Browser, base_url: str) -> Iterator[BrowserContext]:
    """A browser context at desktop size in Berlin."""
    context = browser.new_context(
        base_url=base_url,
        viewport={"width": DESKTOP.width, "height": DESKTOP.height},
        timezone_id="Europe/Berlin",
        locale="en-GB",
    )
    context.set_default_timeout(TIMEOUT_MS)
    try:
        yield context
    finally:
        context.close()


def set_time_zone(context: BrowserContext, base_url: str) -> None:
    """Set the cookie that the first request of a browser gets."""
    context.add_cookies([{"name": "penstock_zone", "value": "Europe%2FBerlin", "url": base_url}])


@contextmanager
def watched_page(context: BrowserContext, base_url: str) -> Iterator[Page]:
    """Open a page, and fail if the browser reports an error."""
    errors: list[str] = []
    page = context.new_page()
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: None if _is_local(request.url, base_url) else errors.append(request.url))
    try:
        yield page
        assert errors == []
    finally:
        page.close()


def set_variant(page: Page, variant: Variant) -> None:
    page.set_viewport_size({"width": variant.width, "height": variant.height})
    page.emulate_media(color_scheme="dark" if variant.scheme == "dark" else "light")


def _is_local(url: str, base_url: str) -> bool:
    host = base_url.partition("://")[2]
    return url.partition("://")[2].startswith(host) or url.startswith(("data:", "blob:"))


def tile_number(page: Page, title: str) -> Locator:
    return page.locator(".ps-tile", has=page.get_by_text(title, exact=True)).locator(".ps-tile-number")


def type_over(page: Page, label: str, text: str) -> None:
    """Replace the text of an editor."""
    page.get_by_role("textbox", name=label).click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(text)


def check_pages(page: Page, variant: Variant, paths: Sequence[str]) -> None:
    """Open each path at a size and in a theme, and check its accessibility and width."""
    set_variant(page, variant)
    for path in paths:
        page.goto(path)
        expect(page.locator(".ps-card, .ps-empty").first).to_be_visible()
        if page.locator(".cm-content").count():
            label = next(label for start, label in _EDITOR_LABELS.items() if path.startswith(start))
            expect(page.locator(".cm-content")).to_have_attribute("aria-label", label)
        check_accessible(page)
        check_fits(page)


def check_dialog(page: Page, button: str) -> None:
    """Open a dialog, and check its accessibility and width."""
    page.get_by_role("button", name=button).click()
    expect(page.get_by_role("dialog")).to_be_visible()
    if page.locator(".cm-content").count():
        expect(page.locator(".cm-content")).to_have_attribute("aria-label", "Data of the event, JSON")
    check_all_variants(page, ".q-dialog", (DESKTOP, VARIANTS[-1]))
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def check_all_variants(page: Page, within: str | None = None, variants: Sequence[Variant] = VARIANTS) -> None:
    """Check accessibility and width of the page, or of a part of it, at each size and in each theme."""
    for variant in variants:
        set_variant(page, variant)
        expect(page.locator("html")).to_have_attribute("data-theme", variant.scheme)
        check_accessible(page, within)
        check_fits(page)


def check_accessible(page: Page, within: str | None = None) -> None:
    """Fail on violations that axe-core rates serious or critical."""
    # Elements that fade in have a lower contrast until the animation ends.
    page.evaluate("() => Promise.allSettled(document.getAnimations().map((each) => each.finished))")
    violations = Axe().run(page, within).response["violations"]
    severe = [
        f"{each['id']}: {[(node['html'][:160], node.get('failureSummary')) for node in each['nodes'][:3]]}"
        for each in violations
        if each["impact"] in ("serious", "critical")
    ]
    assert not severe, "\n".join(severe)


def check_fits(page: Page) -> None:
    """Fail if an element is wider than the window."""
    wide = page.evaluate(
        "() => document.documentElement.scrollWidth <= window.innerWidth ? [] :"
        "[...document.querySelectorAll('main *')]"
        ".filter((each) => each.getBoundingClientRect().right > window.innerWidth + 1 && !each.closest('.ps-scroll'))"
        ".map((each) => each.outerHTML.slice(0, 120))"
    )
    assert not wide, "\n".join(wide)


def check_table_fits_a_phone(page: Page, label: str) -> None:
    """Fail if a table scrolls sideways on a phone."""
    set_variant(page, VARIANTS[-1])
    table = page.locator(f".ps-scroll[aria-label={json.dumps(label)}]")
    expect(table.get_by_role("cell").first).to_be_visible()
    widths = table.evaluate("(table) => [table.scrollWidth, table.clientWidth]")
    assert widths[0] <= widths[1], f"{label} is {widths[0]} px wide, and {widths[1]} px are visible"
