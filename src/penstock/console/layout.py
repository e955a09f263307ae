"""What is around every page: navigation, title, theme, who is signed in, and whether the database answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from nicegui import ui

from penstock.console.assets import address_of_asset
from penstock.console.page import Page, View
from penstock.console.widgets.parts import element, text

#: What every page has in its head.
HEAD = (
    f'<link rel="stylesheet" href="{address_of_asset("look.css")}">'
    f'<script src="{address_of_asset("reader.js")}"></script>'
)
_THEME_ICONS = {"system": "contrast", "light": "light_mode", "dark": "dark_mode"}
#: Tells the server when nobody sees the tab, and reads the theme once Quasar is there.
_WATCH = """
penstock.apply();
document.addEventListener("visibilitychange", () => emitEvent("penstock_hidden", document.hidden));
"""


@contextmanager
def shell(view: View, page: Page, pages: Sequence[Page]) -> Iterator[None]:
    """The frame of a page; what is made inside goes into its middle."""
    ui.add_head_html(HEAD)
    ui.run_javascript(_WATCH)
    ui.on("penstock_hidden", lambda event: view.hide(bool(event.args)))
    with element("div", "ps-shell"):
        _navigation(view, page, pages)
        with element("main", "ps-main", id="main", tabindex="-1"):
            with element("header", "ps-head"):
                text(page.title, tag="h1")
                _state(view)
            yield
            with element("footer", "ps-foot"):
                _foot(view)
    view.keep_checking()


def _navigation(view: View, current: Page, pages: Sequence[Page]) -> None:
    with element("nav", "ps-nav", aria_label="Pages"):
        with element("a", "ps-brand", href="/", aria_label="Penstock"):
            element("img", src=address_of_asset("icon.svg"), alt="", width="24", height="24")
            text("Penstock")
        with element("ul", "ps-pages"):
            for page in pages:
                if page.needs_all and not view.sees_all:
                    continue
                with element("li"):
                    here = {"aria_current": "page"} if page is current else {}
                    with element("a", "ps-page", href=page.path, aria_label=page.title, **here):
                        ui.icon(page.icon).props("aria-hidden=true")
                        text(page.title, "ps-long")
                        text(page.short or page.title, "ps-short")
        with element("div", "ps-nav-foot"):
            _foot(view)


def _foot(view: View) -> None:
    """How it looks, and who looks: below the pages, or on a phone below the page."""
    _theme()
    if view.viewer.session is not None:
        roles = ", ".join(sorted(role.value for role in view.viewer.identity.roles))
        text(f"{view.viewer.identity.id} · {roles}", "ps-who")
        form = element("form", method="post", action="/sign-out")
        with form, element("button", "ps-link", type="submit"):
            ui.icon("logout").props("aria-hidden=true")
            text("Sign out")


def _theme() -> None:
    with element("button", "ps-link ps-theme", type="button", aria_label="Theme: system, light or dark") as switch:
        for name, icon in _THEME_ICONS.items():
            with element("span", f"ps-theme-{name}"):
                ui.icon(icon).props("aria-hidden=true")
                text(f"{name.capitalize()} theme")
    switch.on("click", js_handler="() => penstock.nextTheme()")


def _state(view: View) -> None:
    """Whether the numbers are fresh; beside it the zone that times are in."""
    with element("p", "ps-state", role="status"):
        dot = element("span", "ps-dot", aria_hidden="true")
        said = text("Live")
        text(f"· times in {view.times.name}", "ps-muted ps-zone")
    is_live = True

    def troubled(error: Exception | None) -> None:
        nonlocal is_live
        if (error is None) == is_live:
            return
        is_live = error is None
        dot.classes(remove="ps-off" if is_live else "", add="" if is_live else "ps-off")
        since = view.times.clock(datetime.now(UTC))
        said.set_text("Live" if is_live else f"The database does not answer; numbers are from {since}")

    view.troubled = troubled
