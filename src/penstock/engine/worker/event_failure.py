"""Events that a stage could not process, as tasks report them to the driver."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

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
