"""Internal limits and intervals of the release loop."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReleaseTuning:
    """Internal limits and intervals of the release loop. The defaults suit all queries; tests use smaller ones."""

    #: A release locks the query's row, so it covers at most so many partitions.
    max_partitions: int = 1_000
    #: If the buffer is larger, parked partitions are evicted, longest waits first, until a quarter is free. Only
    #: parked ones: the planner reads at most half as many events, however large they are.
    max_buffer_size: int = 200_000
    #: Fallback interval for lost notifications of acks, and for the search for partitions to evict.
    poll_seconds: float = 1.0
    #: A partition is parked if it has to wait for longer. The planner does not look at parked partitions.
    park_after_us: int = 3_000_000
    #: A parked partition resumes so long before its time, to be read into the buffer.
    resume_early_us: int = 1_500_000
