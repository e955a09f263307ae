"""A PostgreSQL that accepts connections and never responds."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil


@contextmanager
def freeze_process(pid: int) -> Iterator[None]:
    """Stop a server and its children with SIGSTOP inside the context."""
    # The parent first, so that it starts no more children.
    os.kill(pid, signal.SIGSTOP)
    pids = [pid]
    try:
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGSTOP)
                pids.append(child.pid)
        yield
    finally:
        for stopped in pids:
            with suppress(ProcessLookupError):
                os.kill(stopped, signal.SIGCONT)
