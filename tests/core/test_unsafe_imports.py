"""No code of the package runs code that comes from the database, a queue or the network."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import penstock

SOURCE = Path(penstock.__file__).parent
#: Runs the file that the user names: `penstock run FILE`.
PROGRAM_LOADER = SOURCE / "cli" / "program_loader.py"

#: Modules that can create arbitrary objects from bytes.
UNSAFE = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "jsonpickle", "yaml"}


def parse_sources() -> Iterator[tuple[Path, ast.AST]]:
    for path in SOURCE.rglob("*.py"):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def imported_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (part for alias in node.names for part in alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "").split(".")
            yield from (alias.name for alias in node.names)


def test_no_module_deserializes_objects() -> None:
    unsafe = {path: names for path, tree in parse_sources() if (names := UNSAFE.intersection(imported_names(tree)))}
    assert unsafe == {}


def test_no_module_runs_text_as_code() -> None:
    for path, tree in parse_sources():
        if path == PROGRAM_LOADER:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec"), f"{path}:{node.lineno}"
