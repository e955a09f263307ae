"""A reference implementation of windows in plain Python.

It knows nothing of cycles, Spark or SQL: it processes the events of each partition in order, decides whether each is
late, and collects the events of each window in a list.
"""

from __future__ import annotations

import math
import statistics
from calendar import monthrange
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Python's default precision, to which means are rounded; and one in which nothing is rounded.
_MEANS = Context(prec=28)
_EXACT = Context(prec=400)

Span: TypeAlias = tuple[int, int]
#: The windows that contain a time, in microseconds.
WindowFunction: TypeAlias = Callable[[int], list[Span]]
#: Key, start and end.
WindowKey: TypeAlias = tuple[str | None, int, int]


@dataclass(frozen=True)
class OracleEvent:
    """An event of the stream."""

    partition: int
    offset: int
    #: The key of its windows.
    key: str | None
    #: None if the event has no valid time: it does not count and does not advance the watermark.
    time: int | None
    data: Any = None
    #: False if a filter drops the event. It advances the watermark nevertheless.
    passes: bool = True
    #: The watermark to which the clock or a flush had advanced before the event.
    floor: int | None = None


@dataclass
class OracleResult:
    """The events of each window, and the late events."""

    windows: dict[WindowKey, list[OracleEvent]] = field(default_factory=dict)
    late: list[OracleEvent] = field(default_factory=list)


def compute_windows(
    events: Iterable[OracleEvent], spans: WindowFunction, *, grace: int = 0, lateness: int = 0
) -> OracleResult:
    """Assign events to windows, each partition in the order of its offsets."""
    result = OracleResult()
    highest: dict[int, int] = {}
    for event in sorted(events, key=lambda e: (e.partition, e.offset)):
        if event.time is None:
            continue
        before = highest.get(event.partition)
        watermarks = [w for w in (None if before is None else before - lateness, event.floor) if w is not None]
        highest[event.partition] = event.time if before is None else max(before, event.time)
        if not event.passes:
            continue
        open_spans = [s for s in spans(event.time) if not watermarks or s[1] + grace > max(watermarks)]
        for start, end in open_spans:
            result.windows.setdefault((event.key, start, end), []).append(event)
        if not open_spans:
            result.late.append(event)
    return result


# Windows


def tumbling(seconds: float) -> WindowFunction:
    return sliding(seconds, seconds)


def sliding(size: float, slide: float) -> WindowFunction:
    long, step = round(size * 1e6), round(slide * 1e6)

    def spans(time: int) -> list[Span]:
        start, found = time // step * step, []
        while start + long > time:
            found.append((start, start + long))
            start -= step
        return found

    return spans


def calendar(every: str, timezone: str, anchor_day: int = 1, anchor_month: int = 1) -> WindowFunction:
    zone = ZoneInfo(timezone)
    months = {"month": 1, "quarter": 3, "year": 12}.get(every)

    def first_day(month: int) -> date:
        year, index = divmod(month, 12)
        return date(year, index + 1, min(anchor_day, monthrange(year, index + 1)[1]))

    def spans(time: int) -> list[Span]:
        local = (EPOCH + timedelta(microseconds=time)).astimezone(zone)
        if every in ("minute", "hour"):
            long = {"minute": 60, "hour": 3600}[every] * 1_000_000
            into = (local.minute * 60 + local.second) * 1_000_000 + local.microsecond
            start = time - into % long
            return [(start, start + long)]
        if months is None:
            first = local.date() - timedelta(days=local.weekday() if every == "week" else 0)
            after = first + timedelta(days=7 if every == "week" else 1)
        else:
            month = local.year * 12 + local.month - 1
            while (month - anchor_month + 1) % months or first_day(month) > local.date():
                month -= 1
            first, after = first_day(month), first_day(month + months)
        ends = [datetime(d.year, d.month, d.day, tzinfo=zone).astimezone(UTC) for d in (first, after)]
        return [(micros(ends[0]), micros(ends[1]))]

    return spans


def combine(*kinds: WindowFunction) -> WindowFunction:
    return lambda time: [span for kind in kinds for span in kind(time)]


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


# Aggregates of values that are not null


def total(values: Sequence[Decimal]) -> Decimal | None:
    exact = Decimal(0)
    for value in values:
        exact = _EXACT.add(exact, value)
    return exact if values else None


def mean(values: Sequence[Decimal]) -> Decimal | None:
    exact = total(values)
    return None if exact is None else _MEANS.divide(exact, Decimal(len(values)))


def standard_deviation(values: Sequence[Decimal]) -> float | None:
    return statistics.stdev([float(value) for value in values]) if len(values) > 1 else None


_NO_EVENT = OracleEvent(0, 0, None, None, {})


def earliest(events: Sequence[OracleEvent], name: str) -> Any:
    return min(_with(events, name), key=_order, default=_NO_EVENT).data.get(name)


def latest(events: Sequence[OracleEvent], name: str) -> Any:
    return max(_with(events, name), key=_order, default=_NO_EVENT).data.get(name)


def _with(events: Sequence[OracleEvent], name: str) -> list[OracleEvent]:
    return [event for event in events if event.data.get(name) is not None]


def _order(event: OracleEvent) -> tuple[int, int, int]:
    return event.time or 0, event.partition, event.offset


def top_values(values: Sequence[str], k: int) -> list[dict[str, Any]]:
    ranked = sorted(Counter(values).items(), key=lambda item: (-item[1], item[0].encode()))
    return [{"value": value, "count": times} for value, times in ranked[:k]]


def is_percentile(found: float | None, values: Sequence[Decimal] | Sequence[float], fraction: float) -> bool:
    """True if the percentile is the value at the rank: exactly for few distinct values, otherwise within 1 %."""
    if not values:
        return found is None
    ranked = sorted(float(value) for value in values)
    exact = ranked[max(1, math.ceil(Decimal(str(fraction)) * len(ranked))) - 1]
    return found == exact if len(set(ranked)) <= 1024 else math.isclose(found or 0.0, exact, rel_tol=0.01)
