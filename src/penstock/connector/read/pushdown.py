"""What a filter in Spark means for what PostgreSQL is asked: which partitions, which offsets, which keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from penstock.connector.read.offsets import Head
from penstock.log.queue import DEFAULT_KEY, place_key

_T = TypeVar("_T")

_MICROSECOND = timedelta(microseconds=1)
#: Every event has these, so that the filter which Spark adds of itself holds.
_NEVER_NULL = frozenset(("value", "queue", "partition", "offset", "timestamp", "id", "eventTime"))


@dataclass(frozen=True)
class Wanted:
    """What the filters leave of the events; None is all of them."""

    keys: frozenset[str] | None = None
    queues: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    #: From the first on, to before the second.
    offsets: tuple[int, int] = (0, 2**63 - 1)
    since: datetime | None = None
    until: datetime | None = None

    def keeps(self, head: Head, queue: str, counts: Mapping[tuple[int, int], int]) -> bool:
        """Whether a partition can hold any of them; ``counts`` are those of hash partitions by queue and epoch."""
        if self.queues is not None and queue not in self.queues:
            return False
        if self.partitions is not None and head.partition not in self.partitions:
            return False
        if self.keys is None:
            return True
        if head.is_lane:
            # What lies there without a lane of its own may yet have a key.
            return head.name == DEFAULT_KEY or head.name in self.keys
        return any(place_key(key, counts[head.queue, head.epoch]) == head.name for key in self.keys)


def hash_counts(heads: Mapping[int, Head]) -> Counter[tuple[int, int]]:
    """How many hash partitions each epoch of each queue has."""
    return Counter((head.queue, head.epoch) for head in heads.values() if not head.is_lane)


@dataclass
class Pushdown:
    """Takes from Spark the filters that can be left to PostgreSQL. It is what Spark calls in place of a method.

    Spark refuses a reader with a method ``pushFilters`` unless ``spark.sql.python.filterPushdown.enabled`` is on, and
    it is not by default. Nobody should have to set it to read a queue: so this says of itself that it is the method
    that every reader inherits, and is asked where filters are pushed.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    columns: frozenset[str]
    wanted: Wanted = field(default_factory=Wanted)

    def __call__(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Those that Spark has to apply itself."""
        # What says that a value is there comes first, and may be left out once it is known which values are.
        for each in sorted(filters, key=lambda one: isinstance(one, IsNotNull)):
            if not self._take(each):
                yield each

    def _take(self, given: Filter) -> bool:
        name = _column(given)
        if name is None or name not in self.columns:
            return False
        if isinstance(given, IsNotNull):
            # It comes with each comparison, and of a key it is the comparison that leaves out the null ones.
            return name in _NEVER_NULL or (name == "key" and self.wanted.keys is not None)
        narrow = _NARROW.get(name)
        narrowed = None if narrow is None else narrow(self.wanted, given)
        if narrowed is None:
            return False
        self.wanted = narrowed
        return True


def _column(given: Filter) -> str | None:
    attribute: tuple[str, ...] = getattr(given, "attribute", ())
    return attribute[0] if len(attribute) == 1 else None


def _values(given: Filter, kind: type[_T]) -> frozenset[_T] | None:
    """The values of an equality; None if it is none."""
    if isinstance(given, EqualTo | EqualNullSafe):
        values: tuple[Any, ...] = (given.value,)
    elif isinstance(given, In):
        values = tuple(value for value in given.value if value is not None)
    else:
        return None
    return frozenset(values) if all(isinstance(value, kind) for value in values) else None


def _both(a: frozenset[_T] | None, b: frozenset[_T]) -> frozenset[_T]:
    return b if a is None else a & b


def _by_key(wanted: Wanted, given: Filter) -> Wanted | None:
    keys = _values(given, str)
    return None if keys is None else replace(wanted, keys=_both(wanted.keys, keys))


def _by_queue(wanted: Wanted, given: Filter) -> Wanted | None:
    queues = _values(given, str)
    return None if queues is None else replace(wanted, queues=_both(wanted.queues, queues))


def _by_partition(wanted: Wanted, given: Filter) -> Wanted | None:
    partitions = _values(given, int)
    return None if partitions is None else replace(wanted, partitions=_both(wanted.partitions, partitions))


def _span(given: Filter, kind: type[_T], after: Callable[[_T], _T]) -> tuple[_T | None, _T | None] | None:
    """From where on and to before where a comparison lets pass; None if it is none."""
    value = getattr(given, "value", None)
    if not isinstance(value, kind):
        return None
    if isinstance(given, EqualTo | EqualNullSafe):
        return value, after(value)
    if isinstance(given, GreaterThan):
        return after(value), None
    if isinstance(given, GreaterThanOrEqual):
        return value, None
    if isinstance(given, LessThan):
        return None, value
    if isinstance(given, LessThanOrEqual):
        return None, after(value)
    return None


def _by_offset(wanted: Wanted, given: Filter) -> Wanted | None:
    span = _span(given, int, lambda value: value + 1)
    if span is None:
        return None
    start, stop = wanted.offsets
    return replace(
        wanted,
        offsets=(start if span[0] is None else max(start, span[0]), stop if span[1] is None else min(stop, span[1])),
    )


def _by_timestamp(wanted: Wanted, given: Filter) -> Wanted | None:
    try:
        span = _span(given, datetime, lambda value: value.astimezone(UTC) + _MICROSECOND)
    except OverflowError:
        return None
    if span is None or any(moment is not None and moment.utcoffset() is None for moment in span):
        return None
    since = [moment for moment in (wanted.since, span[0]) if moment is not None]
    until = [moment for moment in (wanted.until, span[1]) if moment is not None]
    return replace(wanted, since=max(since, default=None), until=min(until, default=None))


_NARROW: dict[str, Callable[[Wanted, Filter], Wanted | None]] = {
    "key": _by_key,
    "queue": _by_queue,
    "partition": _by_partition,
    "offset": _by_offset,
    "timestamp": _by_timestamp,
}
