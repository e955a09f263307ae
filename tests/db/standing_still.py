"""A PostgreSQL that stands still: it is there, takes connections, and answers nobody."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """Stop the server with this process id and all that it has started, while the block runs."""
    # The first one first, so that it starts none meanwhile.
    os.kill(pid, signal.SIGSTOP)
    family = [pid]
    try:
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGSTOP)
                family.append(child.pid)
        yield
    finally:
        for each in family:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGCONT)
