"""Reads the stored results of the benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.page.names import NAMES
from benchmarks.page.parts import Table

DIRECTORY = Path(__file__).parents[2] / "docs" / "benchmarks"

Result = dict[str, Any]


def read(directory: Path) -> dict[str, Result]:
    """Return all results of a directory by name. An unreadable result is an error."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))}


def find(result: Result, *path: str) -> Any:
    """Return the value at a path, or None."""
    value: Any = result
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return value


def figures(result: Result, paths: dict[str, tuple[str, ...]]) -> Table:
    """Return a table of single figures, without those that the result does not have."""
    values = {label: find(result, *path) for label, path in paths.items()}
    return Table(["", "figure"], [[label, value] for label, value in values.items() if value is not None])


def unavailable(peers: dict[str, dict[str, Any]]) -> list[str]:
    """Return the reasons why peers were not measured."""
    return [
        f"{NAMES[name]} was not measured: {peer['unavailable']}"
        for name, peer in peers.items()
        if "unavailable" in peer
    ]
