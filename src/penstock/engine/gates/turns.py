"""Lanes that share a gate and may be served: who comes next, where there are too many for one release."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container


class Turns:
    """Goes round them in the order of their numbers."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ready: list[int] = []
        self._turn = 0
        self._awaited: tuple[int, ...] = ()

    @property
    def has_more(self) -> bool:
        """Whether somebody was left out of the last lot."""
        return bool(self._ready)

    def lot(self, due: set[int], at_hand: Container[int]) -> list[int]:
        """Those that come next, of the lanes that are due now or were left out, and whoever a budget is kept for."""
        ready = sorted({lane for lane in (*due, *self._ready) if lane in at_hand})
        first = bisect_left(ready, self._turn)
        lot = (ready[first:] + ready[:first])[: self._most]
        self._ready = sorted(set(ready) - set(lot))
        awaited = [lane for lane in self._awaited if lane in at_hand] if lot else []
        return list(dict.fromkeys(lot + awaited))

    def go_on(self, turn: int, awaited: tuple[int, ...]) -> None:
        """Whose turn it is after a decision, and for whom a budget is kept."""
        self._turn, self._awaited = turn, awaited
