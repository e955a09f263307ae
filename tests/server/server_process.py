"""``penstock serve`` as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO


@dataclass
class RunningServer:
    """A server process and its address."""

    url: str
    process: subprocess.Popen[str]

    @property
    def websocket_url(self) -> str:
        return self.url.replace("http", "ws", 1)


@contextmanager
def run_server(
    database_url: str,
    options: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    stderr: IO[str] | None = None,
) -> Iterator[RunningServer]:
    """Run ``penstock serve`` on a free port, and stop it with SIGTERM at the end.

    Its log goes to ``stderr`` if that is given.
    """
    environment = {**os.environ, "PENSTOCK_DATABASE_URL": database_url, **(environ or {})}
    command = [sys.executable, "-m", "penstock", "serve", "--port", "0", *options]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        assert process.stdout is not None
        line = ""
        while "Listening on " not in line:
            line = process.stdout.readline()
            assert line, f"the server exited with {process.wait()}"
        yield RunningServer(line.split("Listening on ")[1].strip(), process)
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
