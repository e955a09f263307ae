"""Filter pushdown: which partitions, offsets and keys a filter of Spark leaves to read."""

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

from penstock.connector.read.offsets import PartitionOffsets
from penstock.log.queue import DEFAULT_KEY, hash_partition

_T = TypeVar("_T")

_MICROSECOND = timedelta(microseconds=1)
_NEVER_NULL = frozenset(("value", "queue", "partition", "offset", "timestamp", "id", "eventTime"))


@dataclass(frozen=True)
class EventFilter:
    """The events that the filters leave; None does not filter."""

    keys: frozenset[str] | None = None
    queues: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    #: From the first offset to the second (exclusive).
    offsets: tuple[int, int] = (0, 2**63 - 1)
    since: datetime | None = None
    until: datetime | None = None

    def may_match(self, partition: PartitionOffsets, queue: str, counts: Mapping[tuple[int, int], int]) -> bool:
        """Return whether a partition can have matching events.

        ``counts`` are the numbers of hash partitions by queue and epoch.
        """
        if self.queues is not None and queue not in self.queues:
            return False
        if self.partitions is not None and partition.partition_id not in self.partitions:
            return False
        if self.keys is None:
            return True
        if partition.is_key_partition:
            # The default partition has events of keys without a partition of their own.
            return partition.name == DEFAULT_KEY or partition.name in self.keys
        count = counts[partition.queue_id, partition.epoch]
        return any(hash_partition(key, count) == partition.name for key in self.keys)


def count_hash_partitions(partitions: Mapping[int, PartitionOffsets]) -> Counter[tuple[int, int]]:
    """Return the number of hash partitions by queue and epoch."""
    return Counter(
        (partition.queue_id, partition.epoch) for partition in partitions.values() if not partition.is_key_partition
    )


@dataclass
class FilterPushdown:
    """Takes the filters that PostgreSQL can apply. An instance replaces the method ``pushFilters`` of a reader.

    Spark refuses a reader that overrides ``pushFilters`` unless ``spark.sql.python.filterPushdown.enabled`` is set,
    which is not the default. With ``__func__``, an instance looks like the inherited method.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    columns: frozenset[str]
    filter: EventFilter = field(default_factory=EventFilter)

    def __call__(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Return the filters that Spark has to apply."""
        # IsNotNull comes last: if keys are compared, null keys are excluded.
        for each in sorted(filters, key=lambda one: isinstance(one, IsNotNull)):
            if not self._take(each):
                yield each

    def _take(self, given: Filter) -> bool:
        name = _column(given)
        if name is None or name not in self.columns:
            return False
        if isinstance(given, IsNotNull):
            return name in _NEVER_NULL or (name == "key" and self.filter.keys is not None)
        narrow = _NARROW.get(name)
        narrowed = None if narrow is None else narrow(self.filter, given)
        if narrowed is None:
            return False
        self.filter = narrowed
        return True


def _column(given: Filter) -> str | None:
    attribute: tuple[str, ...] = getattr(given, "attribute", ())
    return attribute[0] if len(attribute) == 1 else None


def _values(given: Filter, kind: type[_T]) -> frozenset[_T] | None:
    """Return the values that a column is compared with for equality; None for other filters."""
    if isinstance(given, EqualTo | EqualNullSafe):
        values: tuple[Any, ...] = (given.value,)
    elif isinstance(given, In):
        values = tuple(value for value in given.value if value is not None)
    else:
        return None
    return frozenset(values) if all(isinstance(value, kind) for value in values) else None


def _by_values(name: str, kind: type[Any]) -> Callable[[EventFilter, Filter], EventFilter | None]:
    """Return the function that narrows a set of values of an EventFilter."""

    def narrow(current: EventFilter, given: Filter) -> EventFilter | None:
        values = _values(given, kind)
        if values is None:
            return None
        before: frozenset[Any] | None = getattr(current, name)
        changes: dict[str, Any] = {name: values if before is None else before & values}
        return replace(current, **changes)

    return narrow


def _bounds(given: Filter, kind: type[_T], after: Callable[[_T], _T]) -> tuple[_T | None, _T | None] | None:
    """Return the first value that passes a comparison and the first after the last one; None for other filters."""
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


def _by_offset(current: EventFilter, given: Filter) -> EventFilter | None:
    bounds = _bounds(given, int, lambda value: value + 1)
    if bounds is None:
        return None
    (start, stop), (low, high) = current.offsets, bounds
    return replace(
        current, offsets=(start if low is None else max(start, low), stop if high is None else min(stop, high))
    )


def _by_timestamp(current: EventFilter, given: Filter) -> EventFilter | None:
    try:
        bounds = _bounds(given, datetime, lambda value: value.astimezone(UTC) + _MICROSECOND)
    except OverflowError:
        return None
    if bounds is None or any(time is not None and time.utcoffset() is None for time in bounds):
        return None
    low, high = bounds
    since = [time for time in (current.since, low) if time is not None]
    until = [time for time in (current.until, high) if time is not None]
    return replace(current, since=max(since, default=None), until=min(until, default=None))


_NARROW: dict[str, Callable[[EventFilter, Filter], EventFilter | None]] = {
    "key": _by_values("keys", str),
    "queue": _by_values("queues", str),
    "partition": _by_values("partitions", int),
    "offset": _by_offset,
    "timestamp": _by_timestamp,
}
