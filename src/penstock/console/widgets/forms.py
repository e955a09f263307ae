"""Breadcrumbs, tabs, filter forms and pagers.

All of them are plain links and GET forms: their state is in the URL, and they work with the keyboard alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, tzinfo

from nicegui.element import Element

from penstock.console.page import url_for
from penstock.console.widgets.elements import element, link, text


def breadcrumb(*parents: tuple[str, str], current: str) -> None:
    """Create links to the parent pages, given as names and URLs, and the name of the current one."""
    with element("nav", "ps-row", aria_label="Breadcrumb"):
        for name, href in parents:
            link(name, href)
            text("/", "ps-muted").props["aria-hidden"] = "true"
        text(current, "ps-strong ps-break", tag="h2")


def tabs(label: str, current: str, urls: Mapping[str, str]) -> None:
    """Create the tabs of a page from their titles and URLs."""
    with element("nav", "ps-row", aria_label=label):
        for title, url in urls.items():
            attributes = {"aria_current": "page"} if title == current else {}
            link(title, url, "ps-button", **attributes)


@contextmanager
def filter_form(path: str, label: str, hidden: Mapping[str, str | None]) -> Iterator[Element]:
    """Create a form that opens ``path`` with its fields, and with ``hidden`` parameters, in the query string."""
    with element("form", "ps-row ps-filters", method="get", action=path, aria_label=label, role="search") as form:
        for name, value in hidden.items():
            if value:
                element("input", type="hidden", name=name, value=value)
        yield form


def text_field(name: str, label: str, value: str = "", *, kind: str = "text", hint: str = "", width: str = "") -> None:
    """Create an input with a label. ``hint`` is its placeholder."""
    with element("label", "ps-field ps-stack") as wrapper:
        if width:
            wrapper.style(f"flex-basis: {width}")
        text(label)
        attributes = {"placeholder": hint} if hint else {}
        created = element("input", type=kind, name=name, value=value, autocomplete="off", **attributes)
        if kind == "datetime-local":
            created.props["step"] = "1"


def select_field(name: str, label: str, options: Mapping[str, str], value: str = "") -> None:
    """Create a select: value -> label of each option."""
    with element("label", "ps-field ps-stack"):
        text(label)
        with element("select", name=name):
            for option, option_label in options.items():
                attributes = {"selected": "selected"} if option == value else {}
                with element("option", value=option, **attributes):
                    text(option_label)


def checkbox(name: str, label: str, value: bool) -> None:
    with element("label", "ps-row"):
        attributes = {"checked": "checked"} if value else {}
        element("input", type="checkbox", name=name, value="1", **attributes)
        text(label)


def submit_button(label: str = "Show") -> None:
    with element("button", "ps-button", type="submit"):
        text(label)


def pager(path: str, params: Mapping[str, str | int | None], page: int, has_more: bool, name: str) -> None:
    """Create links to the previous and the next page. ``name`` is the plural of the entries."""
    if page == 0 and not has_more:
        return
    with element("nav", "ps-row", aria_label=f"Pages of {name}"):
        _pager_link("Previous", "chevron_left", url_for(path, **params, page=page - 1 or None) if page > 0 else "")
        text(f"Page {page + 1:,}", "ps-muted")
        _pager_link("Next", "chevron_right", url_for(path, **params, page=page + 1) if has_more else "")


def _pager_link(label: str, icon: str, href: str) -> None:
    if href:
        link(label, href, "ps-button", icon)
    else:
        text(label, "ps-button disabled").props["aria-disabled"] = "true"


def description_list(pairs: Sequence[tuple[str, str]]) -> None:
    """Create a list of names and values."""
    with element("dl", "ps-grid ps-properties"):
        for name, value in pairs:
            with element("div"):
                text(name, "ps-muted ps-small", tag="dt")
                text(value, "ps-break", tag="dd")


def parse_int(params: Mapping[str, str], name: str, default: int = 0) -> int:
    """Return a whole number of the query string, or the default if it is missing or malformed."""
    value = params.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 16 else default


def parse_time(value: str | None, zone: tzinfo) -> datetime | None:
    """Parse the time of an input, in ``zone`` unless it has an offset. Return None if it is missing or malformed."""
    if not value:
        return None
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError:
        return None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=zone)
