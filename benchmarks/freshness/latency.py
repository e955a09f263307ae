"""Latencies from the times of pushes and of polls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil


def latencies_ms(
    probes: Iterable[tuple[int, str, float]], seen: Iterable[tuple[float, str, int]], since: float, until: float
) -> tuple[list[float], int]:
    """Return the latencies of the probes pushed in an interval, and the number of probes that were never seen."""
    polls: dict[str, list[tuple[float, int]]] = {}
    for moment, key, seq in seen:
        polls.setdefault(key, []).append((moment, seq))
    indexes = dict.fromkeys(polls, 0)
    latencies: list[float] = []
    unseen = 0
    for seq, key, pushed_at in sorted(probes):
        key_polls, index = polls.get(key, []), indexes.get(key, 0)
        while index < len(key_polls) and key_polls[index][1] < seq:
            index += 1
        indexes[key] = index
        if index == len(key_polls):
            unseen += 1
        elif since <= pushed_at < until:
            latencies.append((key_polls[index][0] - pushed_at) * 1000)
    return latencies, unseen


def percentile(values: Sequence[float], fraction: float) -> float:
    """Return the percentile by the nearest-rank method."""
    ordered = sorted(values)
    return ordered[max(ceil(fraction * len(ordered)) - 1, 0)]
