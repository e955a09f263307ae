"""The package as a zip for ``--py-files``, and a Python without it."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pyspark

import penstock


def packed_package(directory: Path) -> Path:
    """A zip of both packages."""
    source = Path(penstock.__file__).parents[1]
    archive = directory / "penstock.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for package in ("penstock", "pyspark_penstock"):
            for path in (source / package).rglob("*"):
                if path.is_file() and "__pycache__" not in path.parts:
                    packed.write(path, path.relative_to(source))
    return archive


#: The libraries that the documentation lists, and their dependencies.
_NEEDED = ("psycopg", "msgspec", "zstandard", "platformdirs", "pyarrow", "pandas", "numpy", "pyspark", "py4j")
_NEEDED_BY_THEM = ("typing_extensions", "dateutil", "python_dateutil", "six", "pytz", "tzdata")


def bare_python(path: Path) -> Path:
    """A command that runs this Python with the documented libraries, but without Penstock."""
    libraries = path.parent / f"{path.name}-libraries"
    libraries.mkdir(parents=True)
    for found in Path(pyspark.__file__).parents[1].iterdir():
        if found.name.startswith((*_NEEDED, *_NEEDED_BY_THEM)):
            (libraries / found.name).symlink_to(found)
    # Without site, there are no others.
    return _command(path, f'PYTHONPATH="{libraries}:$PYTHONPATH" exec "{sys.executable}" -S "$@"')


def whole_python(path: Path) -> Path:
    """A command that runs this Python."""
    return _command(path, f'exec "{sys.executable}" "$@"')


def _command(path: Path, line: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path
