"""The results: the JSON objects of the benchmarks by the name of the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.page.names import NAMES
from benchmarks.page.parts import Table

DIRECTORY = Path(__file__).parents[2] / "docs" / "benchmarks"

Result = dict[str, Any]


def read(directory: Path) -> dict[str, Result]:
    """Every result that is there; one that cannot be read is an error, and not left out."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))}


def find(result: Result, *path: str) -> Any:
    """Return the value at a path, or None."""
    found: Any = result
    for name in path:
        if not isinstance(found, dict) or name not in found:
            return None
        found = found[name]
    return found


def figures(result: Result, wanted: dict[str, tuple[str, ...]]) -> Table:
    """Single figures, of those wanted that are there."""
    found = {label: find(result, *path) for label, path in wanted.items()}
    return Table(["", "figure"], [[label, value] for label, value in found.items() if value is not None])


def unavailable(peers: dict[str, dict[str, Any]]) -> list[str]:
    """Why peers were not measured."""
    return [
        f"{NAMES[who]} was not measured: {said['unavailable']}" for who, said in peers.items() if "unavailable" in said
    ]
