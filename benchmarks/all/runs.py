"""The runs of the results page, in order."""

from __future__ import annotations

from dataclasses import dataclass

CURVES = ("events", "keys", "queries", "partitions", "executors", "groups")


@dataclass(frozen=True, slots=True)
class Run:
    """A benchmark and its arguments. Its result is ``<name>.json``."""

    name: str
    arguments: tuple[str, ...]

    def command(self, *, quick: bool) -> list[str]:
        return [*self.arguments, *(["--quick"] if quick else [])]


RUNS = (
    Run("log", ("log",)),
    Run("ingest", ("ingest",)),
    Run("drain", ("drain",)),
    Run("windows", ("windows",)),
    Run("freshness", ("freshness",)),
    Run("gate", ("gate",)),
    Run("e2e", ("e2e",)),
    Run("day", ("e2e", "--day")),
    Run("console", ("console",)),
    Run("connector", ("connector",)),
    Run("nexmark", ("nexmark",)),
    Run("joins", ("joins",)),
    Run("totals", ("totals",)),
    Run("profile", ("profile",)),
    *(Run(f"scaling-{curve}", ("scaling", "--curve", curve)) for curve in CURVES),
)


def named(names: list[str]) -> list[Run]:
    """Return the runs with these names. ``scaling`` selects all runs with that prefix."""
    return [run for run in RUNS if any(run.name == name or run.name.startswith(f"{name}-") for name in names)]
