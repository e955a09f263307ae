"""What a stream's windows must hold, in plain Python and by the rules alone.

It knows nothing of cycles, Spark or SQL: events go by in the order of their partitions, each is late or is not, and a
window is the list of what fell into it.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Python's own precision, in which means are given; and one in which nothing is ever rounded.
_MEANS = Context(prec=28)
_EXACT = Context(prec=400)

Span: TypeAlias = tuple[int, int]
#: From a time to the windows it lies in, in microseconds.
Spans: TypeAlias = Callable[[int], list[Span]]
#: Key, start and end.
Place: TypeAlias = tuple[str | None, int, int]


@dataclass(frozen=True)
class Seen:
    """An event as a stream meets it."""

    partition: int
    offset: int
    #: What windows are kept by.
    key: str | None
    #: None: it has none that can be read, so it neither counts nor moves time.
    time: int | None
    data: Any = None
    #: False: a condition leaves it out. Its partition's time goes on all the same.
    passes: bool = True
    #: Windows up to here were closed by the clock, or by a flush, before it came.
    floor: int | None = None


@dataclass
class Answer:
    """What was asked of the oracle."""

    windows: dict[Place, list[Seen]] = field(default_factory=dict)
    late: list[Seen] = field(default_factory=list)


def answer(events: Iterable[Seen], spans: Spans, *, grace: int = 0, lateness: int = 0) -> Answer:
    """The windows of all events, each partition's in the order of its offsets, and those that came too late."""
    found = Answer()
    highest: dict[int, int] = {}
    for event in sorted(events, key=lambda e: (e.partition, e.offset)):
        if event.time is None:
            continue
        before = highest.get(event.partition)
        bounds = [b for b in (None if before is None else before - lateness, event.floor) if b is not None]
        highest[event.partition] = event.time if before is None else max(before, event.time)
        if not event.passes:
            continue
        open_spans = [s for s in spans(event.time) if not bounds or s[1] + grace > max(bounds)]
        for start, end in open_spans:
            found.windows.setdefault((event.key, start, end), []).append(event)
        if not open_spans:
            found.late.append(event)
    return found


# Windows


def tumbling(seconds: float) -> Spans:
    return sliding(seconds, seconds)


def sliding(size: float, slide: float) -> Spans:
    long, step = round(size * 1e6), round(slide * 1e6)

    def spans(time: int) -> list[Span]:
        start, found = time // step * step, []
        while start + long > time:
            found.append((start, start + long))
            start -= step
        return found

    return spans


def calendar(every: str, timezone: str) -> Spans:
    zone = ZoneInfo(timezone)

    def spans(time: int) -> list[Span]:
        local = (EPOCH + timedelta(microseconds=time)).astimezone(zone)
        if every in ("minute", "hour"):
            long = {"minute": 60, "hour": 3600}[every] * 1_000_000
            into = (local.minute * 60 + local.second) * 1_000_000 + local.microsecond
            start = time - into % long
            return [(start, start + long)]
        first = local.date() - timedelta(days=local.weekday() if every == "week" else 0)
        after = first + timedelta(days=7 if every == "week" else 1)
        ends = [datetime(d.year, d.month, d.day, tzinfo=zone).astimezone(UTC) for d in (first, after)]
        return [(micros(ends[0]), micros(ends[1]))]

    return spans


def several(*kinds: Spans) -> Spans:
    return lambda time: [span for kind in kinds for span in kind(time)]


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


# Aggregates: of the values that are not null


def total(values: Sequence[Decimal]) -> Decimal | None:
    exact = Decimal(0)
    for value in values:
        exact = _EXACT.add(exact, value)
    return exact if values else None


def mean(values: Sequence[Decimal]) -> Decimal | None:
    exact = total(values)
    return None if exact is None else _MEANS.divide(exact, Decimal(len(values)))


def spread(values: Sequence[Decimal]) -> float | None:
    return statistics.stdev([float(value) for value in values]) if len(values) > 1 else None


def earliest(events: Sequence[Seen], name: str) -> Any:
    return min(events, key=_order).data.get(name)


def latest(events: Sequence[Seen], name: str) -> Any:
    return max(events, key=_order).data.get(name)


def _order(event: Seen) -> tuple[int, int, int]:
    return event.time or 0, event.partition, event.offset


def top(values: Sequence[str], k: int) -> list[dict[str, Any]]:
    ranked = sorted(Counter(values).items(), key=lambda item: (-item[1], item[0].encode()))
    return [{"value": value, "count": times} for value, times in ranked[:k]]


def is_percentile(found: float | None, values: Sequence[Decimal], fraction: float) -> bool:
    """Whether it lies within 1 percent of the values on both sides of the rank."""
    if not values:
        return found is None
    ranked = sorted(float(value) for value in values)
    rank = fraction * (len(ranked) - 1)
    low, high = ranked[math.floor(rank)], ranked[math.ceil(rank)]
    return found is not None and low - abs(low) * 0.0101 <= found <= high + abs(high) * 0.0101
