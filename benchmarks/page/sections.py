"""Converts results to sections of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from benchmarks.page import engines, nexmark, profile, queues
from benchmarks.page.parts import Section
from benchmarks.page.results import Result

_SECTIONS: dict[str, Callable[[Result], Section]] = {
    "log": queues.log,
    "ingest": queues.ingest,
    "drain": engines.drain,
    "windows": engines.windows,
    "freshness": engines.freshness,
    "gate": queues.gate,
    "e2e": queues.e2e,
    "day": queues.day,
    "console": queues.console,
    "connector": engines.connector,
    "nexmark": nexmark.nexmark,
    "joins": engines.joins,
    "totals": engines.totals,
    "profile": profile.profile,
}


def sections(results: Mapping[str, Result], names: Iterable[str]) -> dict[str, Section]:
    """Return the sections of the available results, in the order of the names."""
    rendered = {}
    for name in names:
        if name in results:
            section = (engines.scaling if name.startswith("scaling-") else _SECTIONS[name])(results[name])
            section.plots = [plot for plot in section.plots if plot.has_data]
            rendered[name] = section
    return rendered
