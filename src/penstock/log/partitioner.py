"""Maps keys to the partitions of a queue, with a cache."""

from __future__ import annotations

import random
from collections.abc import Sequence

from penstock.core.errors import InvalidEvent
from penstock.core.names import find_key_problem
from penstock.log.queue import DEFAULT_KEY, Queue

_MAX_CACHED_KEYS = 200_000


class Partitioner:
    """Assigns events to partitions. It caches the partition of each key, so that a key is validated once."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._partitions: dict[str, str] = {}

    def partition_for_key(self, key: str | None, index: int) -> str:
        """Return the partition of a key, or raise InvalidEvent for the event at ``index`` if the key is invalid."""
        if key is None:
            return self.partition_without_key()
        cached = self._partitions.get(key) if type(key) is str else None
        if cached is not None:
            return cached
        problem = find_key_problem(key)
        if problem is not None:
            raise InvalidEvent(problem, index=index, field="key")
        if len(self._partitions) >= _MAX_CACHED_KEYS:
            self._partitions.clear()
        plain_key = str.__str__(key)
        partition = self._partitions[plain_key] = self.queue.partition_for_key(plain_key)
        return partition

    def partitions_for_keys(self, keys: Sequence[str | None]) -> list[str]:
        try:
            return list(map(self._partitions.__getitem__, keys))  # type: ignore[arg-type]  # None raises KeyError
        except (KeyError, TypeError):
            without_key = self.partition_without_key()
            return [without_key if key is None else self.partition_for_key(key, i) for i, key in enumerate(keys)]

    def assign_by_id(self, partitions: list[str], keys: Sequence[str | None] | None, ids: Sequence[str | None]) -> None:
        """Where the queue deduplicates, move events without a key to the partition that their id belongs to."""
        if self.queue.partition_count is None or self.queue.dedup_window_seconds <= 0:
            return
        for i, event_id in enumerate(ids):
            if event_id is not None and (keys is None or keys[i] is None):
                partitions[i] = self.queue.partition_for_key(event_id)

    def partition_without_key(self) -> str:
        count = self.queue.partition_count
        return DEFAULT_KEY if count is None else str(random.randrange(count))  # noqa: S311 - spreads load
