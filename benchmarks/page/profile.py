"""The section of CPU profiles."""

from __future__ import annotations

from benchmarks.page.parts import Flame, Section, Table
from benchmarks.page.results import Result, find

_RUNS = {"drain": "a drain", "steady": "1,000 events a second, by default"}


def profile(result: Result) -> Section:
    section = Section(
        "Where the time goes",
        "The CPU time of an event by who spends it, and the time of a cycle by the clock. What it shows and what was "
        "changed for it is told in [the architecture](../architecture.md#where-the-time-goes).",
    )
    there = {run: result[run] for run in _RUNS if run in result}
    columns = [(run, key) for run in there for key in ("cpu_s_per_million", "of_it_in_the_kernel")]
    head = ["CPU s per million"]
    for run in there:
        head += [_RUNS[run], "of it in the kernel"]
    names = dict.fromkeys(part for run, key in columns for part in find(result, run, key))
    rows: list[list[object]] = [
        [part.replace(";", ": "), *(find(result, run, key, part) for run, key in columns)] for part in sorted(names)
    ]
    if rows:
        rows.append(["all", *(float(sum(find(result, run, key).values())) for run, key in columns)])
    section.tables.append(Table(head, rows))
    cycles = {run: find(result, run, "cycle") or {} for run in there}
    parts = dict.fromkeys(part for said in cycles.values() for part in said.get("mean_ms", {}))
    section.tables.append(
        Table(
            ["a cycle by the clock, mean ms", *(_RUNS[run] for run in there)],
            [
                ["events in it", *(said.get("events_per_cycle") for said in cycles.values())],
                *([part, *(find(said, "mean_ms", part) for said in cycles.values())] for part in parts),
            ]
            if parts
            else [],
        )
    )
    for run, said in there.items():
        says = f"Flame graph of {_RUNS[run]}: CPU time of Python, the JVM and PostgreSQL"
        section.plots.append(Flame(f"profile-{run}", says, "CPU s per million events", said.get("stacks", {})))
        section.notes += [
            f"{_RUNS[run]}: no stacks by {who}: {why}" for who, why in said.get("not_sampled", {}).items()
        ]
    if there:
        section.notes.append(
            "A picture opened by itself tells of each frame when the pointer rests on it. Samples of the JVM are of "
            "Java code alone: what its threads spend in the kernel is divided like the rest. A query that catches up "
            "computes the next cycle while one is committed, so there the job is partly done when it has its turn."
        )
    return section
