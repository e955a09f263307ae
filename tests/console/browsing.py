"""A page in a real Chromium, as tests use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

#: The console polls every second: what has not come after so many milliseconds does not come.
PATIENCE = 15_000


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
def open_page(browser: Browser, base_url: str, variant: Variant = DESKTOP) -> Iterator[Page]:
    """A page in a browser of its own, in Berlin; at the end nothing may have gone wrong in it."""
    context = browser.new_context(
        base_url=base_url,
        viewport={"width": variant.width, "height": variant.height},
        color_scheme="dark" if variant.scheme == "dark" else "light",
        timezone_id="Europe/Berlin",
        locale="en-GB",
    )
    context.set_default_timeout(PATIENCE)
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


def check_accessible(page: Page) -> None:
    """No violation that axe-core calls serious or critical."""
    found = Axe().run(page).response["violations"]
    grave = [
        f"{each['id']}: {each['help']}: {[node['html'][:160] for node in each['nodes'][:3]]}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
    assert not grave, "\n".join(grave)


def check_fits(page: Page) -> None:
    """Nothing is wider than the window."""
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
