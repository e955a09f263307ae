"""CPU time of processes with everything below them."""

from __future__ import annotations

from contextlib import suppress

import psutil


def cpu_seconds(root: psutil.Process) -> float:
    """CPU time of a process and of all below it so far; of those that ended too, if their parent noticed."""
    spent = 0.0
    with suppress(psutil.NoSuchProcess):
        for process in [root, *root.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                spent += times.user + times.system + times.children_user + times.children_system
    return spent
