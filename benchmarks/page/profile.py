"""Section of the CPU profiles."""

from __future__ import annotations

from benchmarks.page.parts import Flame, Section, Table
from benchmarks.page.results import Result, find

_RUNS = {"drain": "a drain", "steady": "1,000 events/s, default setting"}


def profile(result: Result) -> Section:
    section = Section(
        "Where the time goes",
        "CPU time per event by component, and wall-clock time per cycle by stage. "
        "[The architecture](../architecture.md#where-the-time-goes) discusses the figures.",
    )
    available = {run: result[run] for run in _RUNS if run in result}
    columns = [(run, key) for run in available for key in ("cpu_s_per_million", "of_it_in_the_kernel")]
    head = ["CPU s per million"]
    for run in available:
        head += [_RUNS[run], "of which kernel"]
    names = dict.fromkeys(part for run, key in columns for part in find(result, run, key))
    rows: list[list[object]] = [
        [part.replace(";", ": "), *(find(result, run, key, part) for run, key in columns)] for part in sorted(names)
    ]
    if rows:
        rows.append(["total", *(float(sum(find(result, run, key).values())) for run, key in columns)])
    section.tables.append(Table(head, rows))
    cycles = {run: find(result, run, "cycle") or {} for run in available}
    parts = dict.fromkeys(part for cycle in cycles.values() for part in cycle.get("mean_ms", {}))
    section.tables.append(
        Table(
            ["cycle, mean ms", *(_RUNS[run] for run in available)],
            [
                ["events per cycle", *(cycle.get("events_per_cycle") for cycle in cycles.values())],
                *([part, *(find(cycle, "mean_ms", part) for cycle in cycles.values())] for part in parts),
            ]
            if parts
            else [],
        )
    )
    for run, figures in available.items():
        title = f"Flame graph of {_RUNS[run]}: CPU time of Python, the JVM and PostgreSQL"
        section.plots.append(Flame(f"profile-{run}", title, "CPU s per million events", figures.get("stacks", {})))
        section.notes += [
            f"{_RUNS[run]}: no stacks from {sampler}: {reason}"
            for sampler, reason in figures.get("not_sampled", {}).items()
        ]
    if available:
        section.notes.append(
            "A flame graph that is opened on its own has a tooltip for each frame. Samples of the JVM contain only "
            "Java code: the kernel time of its threads is distributed like the rest. A query that catches up "
            "computes the next cycle during a commit, so part of its job is done before its turn."
        )
    return section
