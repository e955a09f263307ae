"""Nothing that comes from the database, a queue or the network is ever turned into code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import penstock

SOURCE = Path(penstock.__file__).parent

#: Modules that make objects, and so code, of bytes. Who uses one, and why that is within one trust boundary.
ALLOWED = {
    # From a driver to the processes that Spark starts for it, as an option of a data source that the driver itself
    # makes: nobody else can set it who does not run code on that driver already.
    "engine/driver/cycle_source.py": {"cloudpickle"},
}
_UNSAFE = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "jsonpickle", "yaml"}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (part for alias in node.names for part in alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "").split(".")
            yield from (alias.name for alias in node.names)


def test_what_makes_objects_of_bytes_is_used_within_one_trust_boundary_alone() -> None:
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        unsafe = set(imported(ast.parse(path.read_text(encoding="utf-8")))) & _UNSAFE
        if unsafe:
            found[path.relative_to(SOURCE).as_posix()] = unsafe
    assert found == ALLOWED


def test_no_text_is_run_as_code() -> None:
    for path in SOURCE.rglob("*.py"):
        if path == SOURCE / "cli" / "program_loader.py":
            continue  # `penstock run FILE`: the file of whoever calls it
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec"), f"{path}:{node.lineno}"
