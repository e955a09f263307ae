"""Process of a peer engine: runs jobs from standard input, one line of JSON each, and writes responses.

It runs in the environment of the peer and imports only the standard library and psycopg. Every job is the same query:
count, sum and maximum per key and window of 5 seconds of the events in NDJSON files, into an empty PostgreSQL table.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg

WINDOW_MS = 5_000
LATENESS_MS = 1_000
#: Errors of a JVM contain the whole stack trace.
_MAX_ERROR_LENGTH = 300


@dataclass(frozen=True, slots=True)
class WindowJob:
    """The event files, and the target table."""

    files: list[str]
    url: str
    table: str
    #: An empty directory for temporary files.
    directory: str

    @property
    def source(self) -> str:
        """The directory of the files, which contains nothing else."""
        return str(Path(self.files[0]).parent)

    def copy(self, rows: Iterable[str]) -> None:
        """Append CSV rows: key, window start in ms, count, total, max."""
        copy_csv(self.url, self.table, rows)


def copy_csv(url: str, table: str, rows: Iterable[str]) -> None:
    statement = f"COPY {table} FROM STDIN (FORMAT csv)".encode()
    with psycopg.connect(url) as conn, conn.cursor().copy(statement) as copy:
        for row in rows:
            copy.write(row)


def serve(packages: Sequence[str], drain: Callable[[WindowJob], None]) -> None:
    """Run window jobs until standard input ends."""

    def run(request: dict[str, Any]) -> dict[str, object]:
        began = time.perf_counter()
        drain(WindowJob(**request))
        return {"seconds": time.perf_counter() - began}

    serve_requests(packages, run)


def serve_requests(packages: Sequence[str], run: Callable[[dict[str, Any]], dict[str, object]]) -> None:
    """Run jobs until standard input ends."""
    # Responses go to the original standard output. Other output, including that of a JVM, goes to standard error.
    responses = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request.pop("do") == "open":
                response: dict[str, object] = {"versions": {package: version(package) for package in packages}}
            else:
                response = run(request)
        except Exception as error:
            traceback.print_exc()
            message = " ".join(str(error).split())[:_MAX_ERROR_LENGTH]
            response = {"error": f"{type(error).__name__}: {message}"}
        responses.write(json.dumps(response) + "\n")
