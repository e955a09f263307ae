"""Section of the Nexmark queries, with PyFlink."""

from __future__ import annotations

from typing import Any

from benchmarks.page.parts import Panel, Plot, Section, Table
from benchmarks.page.results import Result, find

_CPU = ("engine_cpu_s_per_million", "postgresql_cpu_s_per_million")


def nexmark(result: Result) -> Section:
    section = Section(
        "Nexmark",
        "The Nexmark queries, one statement each, with Penstock and with PyFlink SQL in the same run. The ratio is "
        "Penstock's events/s divided by Flink's.",
    )
    queries: dict[str, dict[str, Any]] = find(result, "queries") or {}
    head = ["", "asks for", "events/s", "Flink", "ratio", "CPU s per million", "Flink", "rows", "exact"]
    section.tables.append(Table(head, [_row(name, query) for name, query in queries.items()]))
    if (mean := find(result, "geometric_mean_ratio")) is not None:
        section.notes.append(
            f"The geometric mean of the ratios is {mean}. Penstock is at least as fast in {find(result, 'won')} of "
            f"{find(result, 'compared')} queries, and the lowest ratio is {find(result, 'lowest_ratio')}."
        )
    section.notes += [f"{name}: {query['note']}." for name, query in queries.items() if query.get("note")]
    section.notes += [
        f"{name}: Flink cannot run it, because {query['flink']['unavailable']}."
        for name, query in queries.items()
        if "unavailable" in query.get("flink", {})
    ]
    rates = {
        label: {name: query[engine]["events_per_s"] for name, query in queries.items() if _has_rate(query, engine)}
        for label, engine in (("Penstock", "penstock"), ("PyFlink", "flink"))
    }
    section.plots.append(
        Plot("nexmark", "Events/s of each Nexmark query, Penstock and PyFlink", [Panel("events/s", rates, log_y=True)])
    )
    for name, query in queries.items():
        if _has_rate(query, "penstock") and _has_rate(query, "flink"):
            ours, theirs = (query[engine]["events_per_s"] for engine in ("penstock", "flink"))
            section.compare(f"Nexmark {name}", "events/s", ours, "flink", theirs)
            ours, theirs = (_cpu(query, engine) for engine in ("penstock", "flink"))
            section.compare(f"Nexmark {name}", "CPU s per million", ours, "flink", theirs, more_is_better=False)
    return section


def _row(name: str, query: dict[str, Any]) -> list[object]:
    rates = [query[engine]["events_per_s"] if _has_rate(query, engine) else None for engine in ("penstock", "flink")]
    cpu = [_cpu(query, engine) for engine in ("penstock", "flink")]
    return [name, query["title"], *rates, query.get("ratio"), *cpu, query["rows"], query.get("exact")]


def _has_rate(query: dict[str, Any], engine: str) -> bool:
    return "events_per_s" in query.get(engine, {})


def _cpu(query: dict[str, Any], engine: str) -> float | None:
    return sum(query[engine][key] for key in _CPU) if _has_rate(query, engine) else None
