"""A page in a real Chromium, as tests use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

#: The console looks every second, on a machine that may be busy: what has not come after this does not come.
PATIENCE = 40_000
expect.set_options(timeout=PATIENCE)


@dataclass(frozen=True)
class Variant:
    """A size of the window and a theme of the system."""

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


@contextmanager
def open_page(browser: Browser, base_url: str, variant: Variant = DESKTOP, *, is_known: bool = True) -> Iterator[Page]:
    """A page in a browser of its own, in Berlin; at the end nothing may have gone wrong in it.

    A browser that is known has been here before, and need not be asked for its zone.
    """
    context = browser.new_context(
        base_url=base_url,
        viewport={"width": variant.width, "height": variant.height},
        color_scheme="dark" if variant.scheme == "dark" else "light",
        timezone_id="Europe/Berlin",
        locale="en-GB",
    )
    context.set_default_timeout(PATIENCE)
    if is_known:
        context.add_cookies([{"name": "penstock_zone", "value": "Europe%2FBerlin", "url": base_url}])
    wrong: list[str] = []
    page = context.new_page()
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: None if _is_local(request.url, base_url) else wrong.append(request.url))
    try:
        yield page
        assert wrong == []
    finally:
        context.close()


def _is_local(url: str, base_url: str) -> bool:
    host = base_url.partition("://")[2]
    return url.partition("://")[2].startswith(host) or url.startswith(("data:", "blob:"))


def check_everywhere(page: Page, within: str | None = None, variants: Sequence[Variant] = VARIANTS) -> None:
    """The page as it is now, or a part of it, at each size and in each theme: axe-core accepts it, and it fits."""
    for variant in variants:
        page.set_viewport_size({"width": variant.width, "height": variant.height})
        page.emulate_media(color_scheme="dark" if variant.scheme == "dark" else "light")
        expect(page.locator("html")).to_have_attribute("data-theme", variant.scheme)
        check_accessible(page, within)
        check_fits(page)


def check_accessible(page: Page, within: str | None = None) -> None:
    """No violation that axe-core calls serious or critical."""
    # What fades in has another contrast for a moment.
    page.evaluate("() => Promise.allSettled(document.getAnimations().map((each) => each.finished))")
    found = Axe().run(page, within).response["violations"]
    grave = [
        f"{each['id']}: {[(node['html'][:160], node.get('failureSummary')) for node in each['nodes'][:3]]}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
    assert not grave, "\n".join(grave)


def check_fits(page: Page) -> None:
    """Nothing is wider than the window."""
    wide = page.evaluate(
        "() => document.documentElement.scrollWidth <= window.innerWidth ? [] :"
        "[...document.querySelectorAll('main *')]"
        ".filter((each) => each.getBoundingClientRect().right > window.innerWidth + 1 && !each.closest('.ps-scroll'))"
        ".map((each) => each.outerHTML.slice(0, 120))"
    )
    assert not wide, "\n".join(wide)
