"""A console in its own process, for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class ConsoleProcess:
    url: str
    database_url: str
    process: subprocess.Popen[str]


@contextmanager
def start_console(
    database_url: str, options: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> Iterator[ConsoleProcess]:
    """Run ``penstock console`` on a free port, and stop it with SIGTERM."""
    environment = {**os.environ, "PENSTOCK_DATABASE_URL": database_url, **(environ or {})}
    command = [sys.executable, "-m", "penstock", "console", "--port", "0", *options]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("Console on "), f"the console ended with {process.wait()}"
        yield ConsoleProcess(line.removeprefix("Console on ").strip(), database_url, process)
    finally:
        process.terminate()
        try:
            assert process.wait(20) == 0
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            process.stdout.close()
