"""Moves the clock of PostgreSQL, which decides about leases and limits, while it runs.

PostgreSQL is started with a preloaded library that shifts the system clock. It is compiled from ``clock.c``. Without
a C compiler the clock cannot be moved, and the report shows this.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
import sys
from pathlib import Path


class DatabaseClock:
    """The shift of PostgreSQL's clock."""

    def __init__(self, directory: Path) -> None:
        self._library = directory / "clock.so"
        self._skew = directory / "clock.skew"
        self._skew.write_bytes(bytes(8))
        self._skew.chmod(0o644)
        with self._skew.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8)
        self._seconds = 0.0
        self.can_be_moved = self._compile()

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of PostgreSQL."""
        if not self.can_be_moved:
            return {}
        return {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._skew)}

    def jump(self, seconds: float) -> None:
        """Move the clock forward or, with negative seconds, back."""
        self._seconds += seconds
        self._map[:] = struct.pack("q", round(self._seconds * 1_000_000))

    def _compile(self) -> bool:
        compiler = shutil.which("cc")
        if compiler is None or sys.platform != "linux":
            return False
        source = Path(__file__).with_name("clock.c")
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(self._library), str(source), "-ldl"]
        made = subprocess.run(command, capture_output=True, check=False)
        if made.returncode == 0:
            self._library.chmod(0o755)
        return made.returncode == 0
