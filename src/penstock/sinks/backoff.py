"""Pauses between attempts."""

from __future__ import annotations

import random
from dataclasses import dataclass

from penstock.core.errors import InvalidOption, shown


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from ``first`` to ``longest`` seconds, each cut by a random part of up to half of it.

    The random part keeps many who failed together from coming back together.
    """

    first: float = 0.5
    longest: float = 30.0

    def __post_init__(self) -> None:
        for name in ("first", "longest"):
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 86_400:
                raise InvalidOption(f"{name} must be a number of seconds, up to a day, not {shown(value)}", option=name)

    def pause(self, failures: int) -> float:
        """How long to wait after so many failures in a row."""
        whole = min(self.first * 2.0 ** min(failures - 1, 60), self.longest)
        return whole * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
