"""A real server process, for tests."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO


@dataclass
class Serving:
    """A server that runs."""

    url: str
    process: subprocess.Popen[str]


@contextmanager
def serving(
    database_url: str,
    options: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    stderr: IO[str] | None = None,
) -> Iterator[Serving]:
    """Start ``penstock serve`` on a free port, and stop it at the end as an operator would.

    What it logs goes to ``stderr``, if that is given.
    """
    environment = {**os.environ, "PENSTOCK_DATABASE_URL": database_url, **(environ or {})}
    command = [sys.executable, "-m", "penstock", "serve", "--port", "0", *options]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        assert process.stdout is not None
        said = ""
        while "Listening on " not in said:
            said = process.stdout.readline()
            assert said, f"the server ended with {process.wait()}"
        yield Serving(said.split("Listening on ")[1].strip(), process)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
