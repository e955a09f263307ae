"""The clock of the database, which all processes share. A test may shift it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(slots=True)
class Clock:
    """Offset that this process adds to the clock of the database. Zero outside of tests."""

    skew: timedelta = timedelta(0)

    def advance(self, seconds: float) -> None:
        """Move time forward, or back if ``seconds`` is negative."""
        self.skew += timedelta(seconds=seconds)
