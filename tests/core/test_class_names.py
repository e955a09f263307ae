"""A class has a name of its own, so that a search for it finds one definition."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import penstock

SOURCE = Path(penstock.__file__).parent
#: Public names: a sink and a source for the same kind of data.
PAIRS = {"Parquet", "Table"}


def test_no_two_classes_of_the_package_have_the_same_name() -> None:
    files = defaultdict(list)
    for file in SOURCE.rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef):
                files[node.name].append(str(file.relative_to(SOURCE)))
    assert len(files) > 1000
    assert {name: found for name, found in files.items() if len(found) > 1 and name not in PAIRS} == {}
