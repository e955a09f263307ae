"""What pages are steered with: tabs, filters, paging.

All of them are addresses, so that they can be shared, reloaded and gone back to, and work without a mouse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, tzinfo

from nicegui import ui
from nicegui.element import Element

from penstock.console.page import link
from penstock.console.widgets.parts import element, text


def trail(*steps: tuple[str, str], here: str) -> None:
    """Where one is: links to what this is a part of, and its name."""
    with element("nav", "ps-trail", aria_label="Where this is"):
        for name, href in steps:
            with element("a", href=href):
                text(name)
            text("/", "ps-muted").props["aria-hidden"] = "true"
        text(here, "ps-strong ps-break", tag="h2")


def tabs(label: str, current: str, choices: Mapping[str, tuple[str, str]]) -> None:
    """Parts of a page, one of which is shown: name -> title and address."""
    with element("nav", "ps-tabs", aria_label=label):
        for name, (title, href) in choices.items():
            here = {"aria_current": "page"} if name == current else {}
            with element("a", "ps-tab", href=href, **here):
                text(title)


@contextmanager
def filters(path: str, label: str, kept: Mapping[str, str | None]) -> Iterator[Element]:
    """A form that leads to the same page with what was filled in; ``kept`` goes along unseen."""
    with element("form", "ps-filters", method="get", action=path, aria_label=label, role="search") as form:
        for name, value in kept.items():
            if value:
                element("input", type="hidden", name=name, value=value)
        yield form


def field(name: str, label: str, value: str = "", *, kind: str = "text", hint: str = "", width: str = "") -> None:
    """A field of a form, with its label above it."""
    with element("label", "ps-field") as around:
        if width:
            around.style(f"flex-basis: {width}")
        text(label)
        more = {"placeholder": hint} if hint else {}
        made = element("input", type=kind, name=name, value=value, autocomplete="off", **more)
        if kind == "datetime-local":
            made.props["step"] = "1"


def choice(name: str, label: str, options: Mapping[str, str], value: str = "") -> None:
    """A field in which one of a few things is chosen: value -> words."""
    with element("label", "ps-field"):
        text(label)
        with element("select", name=name):
            for each, words in options.items():
                chosen = {"selected": "selected"} if each == value else {}
                with element("option", value=each, **chosen):
                    text(words)


def tick(name: str, label: str, value: bool) -> None:
    """A box to tick."""
    with element("label", "ps-tick"):
        ticked = {"checked": "checked"} if value else {}
        element("input", type="checkbox", name=name, value="1", **ticked)
        text(label)


def submit(label: str = "Show") -> None:
    """What sends a form."""
    with element("button", "ps-submit", type="submit"):
        text(label)


def pager(path: str, params: Mapping[str, str | int | None], page: int, has_more: bool, what: str) -> None:
    """Links to what comes before and after."""
    if page == 0 and not has_more:
        return
    with element("nav", "ps-row ps-pager", aria_label=f"Pages of {what}"):
        _step("Previous", "chevron_left", link(path, **params, page=page - 1 or None) if page > 0 else "")
        text(f"Page {page + 1:,}", "ps-muted")
        _step("Next", "chevron_right", link(path, **params, page=page + 1) if has_more else "")


def _step(label: str, icon: str, href: str) -> None:
    if not href:
        text(label, "ps-step ps-off").props["aria-disabled"] = "true"
        return
    with element("a", "ps-step", href=href):
        ui.icon(icon).props("aria-hidden=true")
        text(label)


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values beside each other."""
    with element("dl", "ps-about"):
        for name, value in pairs:
            with element("div"):
                text(name, "ps-muted", tag="dt")
                text(value, "ps-break", tag="dd")


def whole(params: Mapping[str, str], name: str, default: int = 0) -> int:
    """A number out of an address, or the default if it is none."""
    given = params.get(name, "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 16 else default


def moment(given: str | None, zone: tzinfo) -> datetime | None:
    """A time as a field of a form gives it, in the reader's zone; None if it is none."""
    if not given:
        return None
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=zone)
