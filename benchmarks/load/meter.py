"""Measures wall-clock time and CPU time of this process while the load runs."""

from __future__ import annotations

import time
from cProfile import Profile
from dataclasses import dataclass
from types import TracebackType
from typing import Self


@dataclass(slots=True)
class Rate:
    """Events, and the wall-clock and CPU seconds that they took."""

    events: int = 0
    seconds: float = 0.0
    cpu: float = 0.0

    @property
    def per_second(self) -> float:
        return self.events / self.seconds if self.seconds else 0.0


class Meter:
    """Measures inside ``with``, cumulatively over several blocks."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu = 0.0
        self._wall = self._spent = 0.0

    def __enter__(self) -> Self:
        self._spent = time.process_time()
        self._wall = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds += time.perf_counter() - self._wall
        self.cpu += time.process_time() - self._spent


class ProfilingMeter(Meter):
    """A meter that also records a profile."""

    def __init__(self) -> None:
        super().__init__()
        self.profile = Profile()

    def __enter__(self) -> Self:
        self.profile.enable()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self.profile.disable()
