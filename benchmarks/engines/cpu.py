"""CPU time of process trees."""

from __future__ import annotations

from contextlib import suppress

import psutil


def cpu_seconds(root: psutil.Process) -> float:
    """Return the CPU time of a process and its descendants so far, including those that ended and were reaped."""
    spent = 0.0
    with suppress(psutil.NoSuchProcess):
        for process in [root, *root.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                spent += times.user + times.system + times.children_user + times.children_system
    return spent
