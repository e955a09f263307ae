"""What a callable is told beside its event."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Context:
    """Handed to a callable that takes ``(event, ctx)``.

    ``metadata`` has the event's queue, partition, offset, key, id, time, appended_at and headers; what a stage adds
    to it, the stages after it in the same worker see.
    """

    query_id: str
    stage: str
    #: 0 at first, then 1, 2, ... when the callable is called again for the same event because it raised.
    attempt: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)
