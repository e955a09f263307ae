"""What the tasks of a cycle say beside their data: how far they read, and what failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.engine.worker.udf import Failure

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Mark(msgspec.Struct, array_like=True, frozen=True):
    """How far a task has read a partition."""

    partition_id: int
    #: Offsets that were gone through, and events that were for this group.
    offsets: int
    events: int
    high_us: int | None
    last_us: int
    #: When the first of them was appended; 0 if that is not known.
    first_us: int = 0


class Report(msgspec.Struct, array_like=True):
    """What one task says."""

    marks: list[Mark]
    failures: list[Failure]
    #: Events that a condition in Python left out, by stage.
    dropped: dict[str, int]
    #: In a join: events that came late, what begins to wait, and what of the left is in a pair now (key, time, id).
    late: list[tuple[int, int]] = []
    fresh: bytes = b""
    matched: list[tuple[str, int, int]] = []
    #: In a join: how many events of the left were sent on in no pair.
    alone: int = 0

    def add_dropped(self, counts: Mapping[str, int]) -> None:
        """Count what conditions have left out of some more events."""
        for stage, events in counts.items():
            self.dropped[stage] = self.dropped.get(stage, 0) + events


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Report).decode


class Ambiguous(Exception):
    """A task ran more than once and did not say the same each time, so the cycle is done again."""


def gather(rows: Iterable[tuple[int, int, bytes]]) -> list[Report]:
    """One report of each task (stage, task, report), or Ambiguous."""
    said: dict[tuple[int, int], bytes] = {}
    for stage, task, report in rows:
        if said.setdefault((stage, task), report) != report:
            raise Ambiguous(f"task {task} of stage {stage} ran twice with different results")
    return [decode(report) for report in said.values()]
