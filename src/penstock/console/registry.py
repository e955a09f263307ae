"""All pages, in the order of the navigation. A new one is a module in ``pages`` and a line here."""

from __future__ import annotations

from penstock.console.page import Page
from penstock.console.pages import alerts, live, overview, queries

PAGES: tuple[Page, ...] = (
    overview.PAGE,
    live.PAGE,
    queries.PAGE,
    alerts.PAGE,
)
