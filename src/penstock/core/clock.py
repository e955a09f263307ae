"""Time is the database's clock, so that every process agrees; a test may push it forward."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(slots=True)
class Clock:
    """How far this process sees the database's clock ahead of what it says. Zero, outside of tests."""

    skew: timedelta = timedelta(0)

    def advance(self, seconds: float) -> None:
        """Move time forward (or back, for a clock that jumps)."""
        self.skew += timedelta(seconds=seconds)
