"""Layout of every page: navigation, title, theme switch, signed-in user, and connection state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from nicegui import ui

from penstock.console.assets import asset_url
from penstock.console.page import Page, View
from penstock.console.pages import alerts, dead_letters, gates, live, overview, queries, queues, sql
from penstock.console.pages.views import view_list
from penstock.console.widgets.elements import badge, element, set_badge, text

#: HTML in the head of every page.
HEAD = f'<link rel="stylesheet" href="{asset_url("console.css")}"><script src="{asset_url("console.js")}"></script>'
_THEME_ICONS = {"system": "contrast", "light": "light_mode", "dark": "dark_mode"}
#: Applies the theme once Quasar is loaded, and reports when the tab goes to the background.
_ON_LOAD = """
penstock.apply();
document.addEventListener("visibilitychange", () => emitEvent("penstock_hidden", document.hidden));
"""


PAGES: tuple[Page, ...] = (
    overview.PAGE,
    live.PAGE,
    queues.PAGE,
    queries.PAGE,
    view_list.PAGE,
    gates.PAGE,
    dead_letters.PAGE,
    alerts.PAGE,
    sql.PAGE,
)


@contextmanager
def layout(view: View, title: str) -> Iterator[None]:
    """Create the layout of the page with this title. Elements that are created inside become its content."""
    ui.add_head_html(HEAD)
    ui.run_javascript(_ON_LOAD)
    ui.on("penstock_hidden", lambda event: view.set_hidden(bool(event.args)))
    with element("div", "ps-layout"):
        _navigation(view, title)
        with element("main", "ps-main ps-stack", id="main", tabindex="-1"):
            with element("header", "ps-row ps-between"):
                text(title, tag="h1")
                _connection_state(view)
            yield
            with element("footer", "ps-row ps-phone"):
                _foot(view)
    view.start_session_checks()


def _navigation(view: View, current: str) -> None:
    with element("nav", "ps-nav", aria_label="Pages"):
        with element("a", "ps-row ps-brand ps-desktop", href="/", aria_label="Penstock"):
            element("img", src=asset_url("icon.svg"), alt="", width="24", height="24")
            text("Penstock")
        with element("ul", "ps-pages"):
            for page in PAGES:
                if page.needs_all and not view.can_see_all:
                    continue
                with element("li"):
                    current_page = {"aria_current": "page"} if page.title == current else {}
                    with element("a", "ps-nav-item", href=page.path, aria_label=page.title, **current_page):
                        ui.icon(page.icon).props("aria-hidden=true")
                        text(page.title, "ps-desktop")
                        text(page.short or page.title, "ps-phone")
        with element("div", "ps-desktop"):
            _foot(view)


def _foot(view: View) -> None:
    """Create the theme switch and the signed-in user: below the navigation, or on a phone below the page."""
    _theme_switch()
    if view.viewer.session is not None:
        roles = ", ".join(sorted(role.value for role in view.viewer.identity.roles))
        text(f"{view.viewer.identity.id} · {roles}", "ps-user ps-muted ps-small ps-break")
        form = element("form", method="post", action="/sign-out")
        with form, element("button", "ps-nav-item", type="submit"):
            ui.icon("logout").props("aria-hidden=true")
            text("Sign out")


def _theme_switch() -> None:
    with element("button", "ps-nav-item", type="button", aria_label="Theme: system, light or dark") as switch:
        for name, icon in _THEME_ICONS.items():
            with element("span", f"ps-row ps-theme-{name}"):
                ui.icon(icon).props("aria-hidden=true")
                text(f"{name.capitalize()} theme")
    switch.on("click", js_handler="() => penstock.nextTheme()")


def _connection_state(view: View) -> None:
    """Create the note that tells whether the values are live, and the time zone."""
    time_zone = f"times in {view.times.name}"
    with element("p", "ps-row ps-small", role="status"):
        state = badge("Live", "good")
        note = text(time_zone, "ps-muted")

    def report_error(error: Exception | None) -> None:
        if error is None:
            set_badge(state, "Live", "good")
            note.set_text(time_zone)
        elif state.text == "Live":
            set_badge(state, "Not live", "bad")
            since = view.times.clock(datetime.now(UTC))
            note.set_text(f"The database cannot be reached; values are from {since}")

    view.report_error = report_error
