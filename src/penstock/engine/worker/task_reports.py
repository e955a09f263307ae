"""Reports of tasks to the driver: how far they read each partition, and which events failed."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

_ENGINE_DIRECTORY = str(Path(__file__).parents[1])
#: Longer error messages and tracebacks are truncated.
_MAX_CHARACTERS = 8_000


class EventRef(NamedTuple):
    partition_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class EventFailure:
    partition_id: int
    offset: int
    stage: str
    error: str
    traceback: str | None = None
    attempts: int = 1

    @classmethod
    def from_exception(cls, event: EventRef, stage: str, error: BaseException, attempts: int) -> Self:
        message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        frames = "".join(traceback.format_exception(type(error), error, _user_frames(error)))
        return cls(*event, stage, message[:_MAX_CHARACTERS], frames[-_MAX_CHARACTERS:], attempts)

    @property
    def event(self) -> EventRef:
        return EventRef(self.partition_id, self.offset)


def _user_frames(error: BaseException) -> TracebackType | None:
    """Drop the engine's own frames above the user's function."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_ENGINE_DIRECTORY):
        frames = frames.tb_next
    return frames or error.__traceback__


class PartitionReport(msgspec.Struct, array_like=True):
    """How far a task has read a partition."""

    partition_id: int
    #: The highest event time so far.
    high_us: int | None
    offsets_read: int = 0
    #: The events among the offsets that belong to the query's group.
    events: int = 0
    #: When the last event that has a time was appended; 0 if there is none.
    last_appended_us: int = 0
    #: When the first event was appended; 0 if unknown.
    first_appended_us: int = 0


class TaskReport(msgspec.Struct, array_like=True):
    partitions: list[PartitionReport]
    failures: list[EventFailure]
    #: Events that user-defined filters dropped, by stage.
    dropped: dict[str, int]
    #: In a join: events that came late.
    late: list[EventRef] = []

    def add_dropped(self, counts: Mapping[str, int]) -> None:
        for stage, events in counts.items():
            self.dropped[stage] = self.dropped.get(stage, 0) + events


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(TaskReport).decode


class ConflictingReports(Exception):
    """The reports of a cycle contradict each other or the plan. The cycle is computed again."""


def decode_reports(stored: Iterable[tuple[int, int, bytes]]) -> list[TaskReport]:
    """Decode the report of each stage and task. Raises ConflictingReports if a task ran twice with other results."""
    reports: dict[tuple[int, int], bytes] = {}
    for stage, task, report in stored:
        if reports.setdefault((stage, task), report) != report:
            raise ConflictingReports(f"task {task} of stage {stage} ran twice with different results")
    return [decode(report) for report in reports.values()]
