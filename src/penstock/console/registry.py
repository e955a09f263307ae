"""All pages, in the order of the navigation."""

from __future__ import annotations

from penstock.console.page import Page
from penstock.console.pages import alerts, dead_letters, gates, live, overview, queries, queues, sql

PAGES: tuple[Page, ...] = (
    overview.PAGE,
    live.PAGE,
    queues.PAGE,
    queries.PAGE,
    gates.PAGE,
    dead_letters.PAGE,
    alerts.PAGE,
    sql.PAGE,
)
