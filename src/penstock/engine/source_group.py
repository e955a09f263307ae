"""The consumer group with which a query reads one of its source queues."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceGroup:
    """A source queue of a query, and the query's consumer group on it."""

    queue: str
    queue_id: int
    group: str
    group_id: int
