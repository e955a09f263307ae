"""How everything is now, and what needs somebody first."""

from __future__ import annotations

from penstock.console import parts
from penstock.console.page import Page, View


async def build(view: View) -> None:
    """Make the page."""
    parts.nothing("Nothing flows yet", "Push an event.", "penstock push orders '{\"amount\": 12.5}'")


PAGE = Page("/", "Overview", "speed", build)
