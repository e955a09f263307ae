"""The options and the counters of a sink."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.backoff import Backoff
from penstock.core.errors import InvalidOption, short_repr
from penstock.core.names import find_text_problem
from penstock.core.option_checks import check_flag, check_integer, check_number
from penstock.log.queue_options import check_lease_seconds

if TYPE_CHECKING:
    from penstock.log.start_position import StartPosition


@dataclass(slots=True)
class Counters:
    """The work of a sink worker since its start."""

    written: int = 0
    batches: int = 0
    #: Attempts that failed and were repeated.
    retries: int = 0
    #: Attempts that the sink refused because it was busy.
    busy: int = 0
    dead_letters: int = 0
    #: Events whose lease ended before they were acknowledged. They are delivered again.
    lost: int = 0
    #: The error of the last attempt; None after a success.
    error: str | None = None
    #: Whether the worker runs.
    running: bool = False


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """How a sink reads its queue and how it retries."""

    #: The most events of a batch; None for the default of the sink.
    batch: int | None = None
    #: The most writes at the same time, each of another partition; None for the default of the sink.
    concurrency: int | None = None
    #: The most partitions of a batch.
    partitions: int = 100
    #: The pause after a batch that is not full, in seconds.
    every: float = 0.0
    #: Attempts to write an event alone before it is a dead letter; None for no limit.
    attempts: int | None = 10
    backoff: Backoff = field(default_factory=Backoff)
    lease_seconds: float = 30.0
    #: The start position of a new group.
    start: StartPosition = "beginning"
    #: Whether the lag of this sink counts for ``max_depth_events`` of the queue; None leaves it as it is (new: yes).
    counts: bool | None = None
    #: How many partitions may be in retry on their own before the sink stops reading.
    stuck: int = 64
    #: Whether the limits of the gate in front of the queue hold for the deliveries; None for the default of the sink.
    limits: bool | None = None

    def __post_init__(self) -> None:
        if self.batch is not None:
            check_integer("batch", self.batch, 1, 100_000)
        if self.concurrency is not None:
            check_integer("concurrency", self.concurrency, 1, 1_000)
        check_integer("partitions", self.partitions, 1, 100_000)
        check_integer("stuck", self.stuck, 1, 100_000)
        if self.attempts is not None:
            check_integer("attempts", self.attempts, 1, 1_000_000)
        check_lease_seconds(self.lease_seconds)
        # Options from a file of SQL statements have any type.
        backoff: object = self.backoff
        if not isinstance(backoff, Backoff):
            raise InvalidOption(f"backoff must be a Backoff(...), not {backoff!r}", option="backoff")
        check_number("every", self.every, 0, 86_400)
        if self.limits is not None:
            check_flag("limits", self.limits)


def read_path(option: str, value: object) -> Path:
    """Return an absolute path."""
    given = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(given, str) or not given or find_text_problem(given) is not None:
        raise InvalidOption(f"{option} must be a path, not {short_repr(value)}", option=option)
    try:
        return Path(given).expanduser().absolute()
    except RuntimeError as error:
        raise InvalidOption(f"{option} {short_repr(given)} cannot be resolved: {error}", option=option) from None


def read_number(option: str, value: object, highest: float) -> float:
    """Return a number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= highest:
        raise InvalidOption(
            f"{option} must be a number above 0 and at most {highest:g}, not {short_repr(value)}", option=option
        )
    return value


def read_texts(option: str, value: object) -> list[str]:
    """Return a list of strings that PostgreSQL can store."""
    given = list(value) if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray) else None
    if given is None or not all(isinstance(text, str) and text and find_text_problem(text) is None for text in given):
        raise InvalidOption(f"{option} must be a list of strings, not {short_repr(value)}", option=option)
    return given


def read_mapping(option: str, value: object) -> dict[str, str]:
    """Return a mapping of strings to strings."""
    if not isinstance(value, Mapping) or any(find_text_problem(text) is not None for text in value.values()):
        raise InvalidOption(f"{option} must be a mapping of strings to strings, not {short_repr(value)}", option=option)
    read_texts(option, list(value))
    return dict(value)
