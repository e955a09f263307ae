"""The page as Markdown: what ran where, the sections, and where a peer is better."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.page.names import NAMES
from benchmarks.page.parts import Comparison, Flame, Section, Table, cell
from benchmarks.page.results import Result, find

_INTRODUCTION = """# Benchmarks

<!-- Made by `python -m benchmarks page` from the results beside it: change those, not this. -->

Every figure here was measured by `make bench`, which anybody can run again: it starts a PostgreSQL of its own with
`fsync` and `synchronous_commit` on, gives peers the same work in the same run, holds every result against an oracle,
and leaves what it measured beside this page as JSON. Load generator, engine and database share the machine. Between
runs expect a difference of 15 percent; within a run, ratios count.
"""


def page(results: Mapping[str, Result], sections: Mapping[str, Section]) -> str:
    """The whole page; the same results make the same page."""
    parts = [_INTRODUCTION]
    if not sections:
        parts.append("Nothing has been measured yet: `make bench`.")
        return "\n".join(parts) + "\n"
    if any(results[name].get("quick") for name in sections):
        parts.append(
            '!!! warning "Quick runs"\n\n    Some of these figures come from `--quick`, which is there to try the '
            "benchmarks out: too little work to be quoted.\n"
        )
    parts.append(_better([one for section in sections.values() for one in section.comparisons]))
    for name, section in sections.items():
        parts.append(_section(name, section, results[name]))
    parts.append(_runs(results, sections))
    return "\n".join(parts).rstrip() + "\n"


def _better(comparisons: list[Comparison]) -> str:
    """List the results in which a peer is better."""
    if not comparisons:
        return ""
    behind = [one for one in comparisons if one.times < 1]
    text = (
        "## Where a peer is better\n\nOf "
        f"{_count(len(comparisons), 'figure')} that a peer has too, the peer's is better in {len(behind)}.\n"
    )
    if behind:
        rows = [
            [one.what, NAMES[one.peer], one.theirs, one.ours, one.unit, f"{1 / one.times:.2f} ×"]
            for one in sorted(behind, key=lambda one: one.times)
        ]
        text += "\n" + Table(["", "peer", "peer's figure", "Penstock's", "unit", "better by"], rows).markdown() + "\n"
    rows = []
    for peer in dict.fromkeys(one.peer for one in comparisons):
        times = sorted(one.times for one in comparisons if one.peer == peer)
        ahead = sum(each >= 1 for each in times)
        rows.append([NAMES[peer], f"{ahead} of {len(times)}", f"{times[0]:.2f} ×", f"{times[-1]:.2f} ×"])
    head = ["peer", "Penstock is as good or better in", "worst figure for Penstock", "best"]
    return f"{text}\n{Table(head, rows).markdown()}\n"


def _section(name: str, section: Section, result: Result) -> str:
    parts = [f"## {section.title}", section.about]
    if result.get("work"):
        parts.append(str(result["work"]))
    if not result.get("ok"):
        said = "\n".join(f"    - {cell(failure)}" for failure in result.get("failures", []))
        parts.append(f'!!! failure "Checks of this run failed"\n\n{said}')
    parts += [table.markdown() for table in section.tables if table.rows]
    for plot in section.plots:
        picture = f"![{plot.says}]({plot.name}.svg)"
        # A browser shows what frames say only where the picture is a page of its own.
        parts.append(f"[{picture}]({plot.name}.svg)" if isinstance(plot, Flame) else picture)
    parts.append("\n".join(f"- {cell(note)}" for note in section.notes))
    command = find(result, "environment", "command") or f"python -m benchmarks {name}"
    parts.append(f"[`{name}.json`]({name}.json): `{command}`")
    return "\n\n".join(part for part in parts if part) + "\n"


def _runs(results: Mapping[str, Result], names: Iterable[str]) -> str:
    """When, on what, beside how much else, and with how many checks."""
    environments = {name: find(results[name], "environment") or {} for name in names}
    rows = [
        [
            name,
            str(said.get("date", "–"))[:16].replace("T", " "),
            said.get("commit"),
            said.get("seconds"),
            _percent(said.get("cpu_share_of_others")),
            _percent(said.get("steal_share")),
            _checks(results[name]),
        ]
        for name, said in environments.items()
    ]
    head = ["run", "began (UTC)", "commit", "seconds", "CPU taken by others", "by the host", "checks"]
    machines = dict.fromkeys(_machine(said) for said in environments.values())
    versions: dict[str, dict[str, None]] = {}
    for said in environments.values():
        for package, version in {
            "Python": said.get("python"),
            "Java": said.get("java"),
            **said.get("packages", {}),
        }.items():
            if version is not None:
                versions.setdefault(package, {})[str(version)] = None
    for name in environments:
        if version := find(results[name], "settings", "server_version"):
            versions.setdefault("PostgreSQL", {})[str(version)] = None
    listed = ", ".join(f"{package} {' and '.join(found)}" for package, found in versions.items())
    return (
        f"## The runs\n\nMachine: {'; '.join(machines)}.\n\nVersions: {listed}.\n\n{Table(head, rows).markdown()}\n\n"
        "Runs are of the days and commits that stand here, not all of one: a run is made again when what it measures "
        "has changed. A commit may have been joined with others since, and is then not in the history under that name; "
        "one with a plus had changes beside it. What processes of a run spent in their last seconds may count as "
        "others'.\n"
    )


def _machine(said: Mapping[str, Any]) -> str:
    return f"{said.get('cpus')} × {said.get('cpu', 'CPU')}, {said.get('memory_gib')} GiB, {said.get('system')}"


def _checks(result: Result) -> str:
    checks = result.get("checks")
    if not checks:
        return "held" if result.get("ok") else "FAILED"
    held = sum(checks.values())
    return f"all {len(checks)} held" if held == len(checks) else f"{len(checks) - held} of {len(checks)} FAILED"


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share * 100:.1f} %"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
