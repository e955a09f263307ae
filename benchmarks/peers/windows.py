"""The inner side of an engine of another make: takes orders as lines of JSON, counts windows, answers each with a line.

Runs in the peer's own environment, which has psycopg beside the peer; nothing else is imported here. The work is always
the same: count, sum and maximum per key and window of 5 seconds of the events in some files of NDJSON, into a table of
PostgreSQL that is there and empty.
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

import psycopg

WINDOW_MS = 5_000
LATENESS_MS = 1_000
#: A JVM's errors have its whole stack in them.
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Order:
    """The events to count, and the target of the rows."""

    files: list[str]
    url: str
    table: str
    #: Of its own, and empty, for what the peer needs besides.
    directory: str

    @property
    def source(self) -> str:
        """The directory that has the files and nothing else."""
        return str(Path(self.files[0]).parent)

    def copy(self, rows: Iterable[str]) -> None:
        """Append lines of CSV: key, start of the window in ms, count, total, max."""
        copy_csv(self.url, self.table, rows)


def copy_csv(url: str, table: str, rows: Iterable[str]) -> None:
    statement = f"COPY {table} FROM STDIN (FORMAT csv)".encode()
    with psycopg.connect(url) as conn, conn.cursor().copy(statement) as copy:
        for some in rows:
            copy.write(some)


def serve(packages: Sequence[str], drain: Callable[[Order], None]) -> None:
    """Follow orders until standard input ends."""
    # Answers go to what was standard output; whatever else is printed, by a JVM too, goes to standard error.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if order.pop("do") == "open":
                answer: dict[str, object] = {"versions": {package: version(package) for package in packages}}
            else:
                began = time.perf_counter()
                drain(Order(**order))
                answer = {"seconds": time.perf_counter() - began}
        except Exception as error:
            traceback.print_exc()
            said = " ".join(str(error).split())[:_LONGEST]
            answer = {"error": f"{type(error).__name__}: {said}"}
        answers.write(json.dumps(answer) + "\n")
