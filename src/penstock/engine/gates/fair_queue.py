"""Lanes that share a gate and may be served: who comes next, where there are too many for one release."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Mapping

from penstock.engine.gates.allocate import Decision


class Turns:
    """Goes round them in the order of their numbers.

    While a gate is kept for a lane, those that are known to need it are not asked, and then all of them are ready at
    once: however many they are, what is refilled is not lost over asking them, and nobody is passed over.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._ready: list[int] = []
        #: Those that wait until what they need suffices for whom it is kept; and, if nobody else is ready, for longer.
        self._behind: set[int] = set()
        self._kept: Mapping[int, int] = {}
        self._kept_us = 0
        self._until_us = 0
        #: Which of the shared gates lanes need for their next event, where that is known.
        self._needs: dict[int, tuple[int, ...]] = {}
        self._turn = 0
        self._awaited: tuple[int, ...] = ()

    @property
    def has_more(self) -> bool:
        """Whether somebody was left out of the last lot."""
        return bool(self._ready or self._behind)

    @property
    def kept(self) -> Mapping[int, int]:
        """The gates that are kept for a lane, and until when."""
        return self._kept

    @property
    def awaited(self) -> Container[int]:
        """Lanes that a gate is kept for."""
        return self._awaited

    @property
    def next_us(self) -> int | None:
        """When there is somebody to ask again who is not due by himself."""
        return self._until_us if self._behind else None

    def lot(self, due: set[int], at_hand: Container[int], now_us: int) -> list[int]:
        """Those that come next, of the lanes that are due now or were left out, and whoever a budget is kept for."""
        if (self._kept_us if self._ready or due else self._until_us) <= now_us:
            self._ready += self._behind
            self._behind = set()
        ready = sorted({lane for lane in (*due, *self._ready) if lane in at_hand})
        first = bisect_left(ready, self._turn)
        lot = (ready[first:] + ready[:first])[: self._most]
        self._ready = sorted(set(ready) - set(lot))
        if len(self._needs) > 2 * (len(ready) + len(self._behind) + self._most):
            self._needs = {lane: gates for lane, gates in self._needs.items() if lane in at_hand}
        awaited = [lane for lane in self._awaited if lane in at_hand] if lot else []
        asked = dict.fromkeys(lot + awaited)
        self._behind.difference_update(asked)
        return list(asked)

    def forget(self, lanes: Iterable[int]) -> None:
        """They are at hand no longer, and are due when they are again."""
        self._behind.difference_update(lanes)

    def go_on(self, decision: Decision, rest_us: int) -> None:
        """Whose turn it is after a decision, and for whom a budget is kept. Nobody asks again before a time."""
        self._turn, self._awaited = decision.turn, decision.awaited
        for lane, verdict in decision.verdicts.items():
            if verdict.behind:
                self._needs[lane] = verdict.behind
            else:
                self._needs.pop(lane, None)
        before, self._kept = self._kept, decision.kept
        self._kept_us = min(decision.kept.values(), default=0)
        self._until_us = max(self._kept_us, rest_us)
        self._behind.update(lane for lane, verdict in decision.verdicts.items() if verdict.behind)
        if decision.kept:
            self._behind.update(lane for lane in self._ready if self._needs_any(lane, decision.kept))
            self._ready = [lane for lane in self._ready if lane not in self._behind]
        if before.keys() - decision.kept.keys():
            # Whoever it was kept for has passed, or may not now: nobody waits for that any more.
            free = {lane for lane in self._behind if not self._needs_any(lane, decision.kept)}
            self._behind -= free
            self._ready += free

    def _needs_any(self, lane: int, kept: Mapping[int, int]) -> bool:
        return any(gate in kept for gate in self._needs.get(lane, ()))
