"""The context that a user-defined function can take beside its event."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Context:
    """The second argument of a function ``f(event, ctx)``.

    Attributes:
        query_id: The id of the query.
        stage: The name of the step.
        attempt: 0 for the first call, then 1, 2, ... when the function is called again for the same event because it
            raised.
        metadata: The event's queue, partition, offset, key, id, time, appended_at and headers. Values that a step adds
            are visible to the later steps in the same worker.
    """

    query_id: str
    stage: str
    attempt: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)
