"""Latencies from the times of pushes and of results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil


def latencies_ms(
    probes: Iterable[tuple[int, str, float]], seen: Iterable[tuple[float, str, int]], since: float, until: float
) -> tuple[list[float], int]:
    """Return the latencies of the probes pushed in an interval, and the number of lost probes."""
    answers: dict[str, list[tuple[float, int]]] = {}
    for moment, key, seq in seen:
        answers.setdefault(key, []).append((moment, seq))
    places = dict.fromkeys(answers, 0)
    took: list[float] = []
    unseen = 0
    for seq, key, pushed_at in sorted(probes):
        some, place = answers.get(key, []), places.get(key, 0)
        while place < len(some) and some[place][1] < seq:
            place += 1
        places[key] = place
        if place == len(some):
            unseen += 1
        elif since <= pushed_at < until:
            took.append((some[place][0] - pushed_at) * 1000)
    return took, unseen


def percentile(values: Sequence[float], fraction: float) -> float:
    """The value that so large a part of all is not above."""
    ordered = sorted(values)
    return ordered[max(ceil(fraction * len(ordered)) - 1, 0)]
