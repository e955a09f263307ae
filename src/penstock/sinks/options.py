"""How an outlet reads and tries, and what it has done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.core.errors import InvalidOption
from penstock.log.options import check_lease_seconds, check_whole
from penstock.sinks.backoff import Backoff

if TYPE_CHECKING:
    from penstock.log.groups import Place


@dataclass(slots=True)
class Counters:
    """What an outlet has done since it was started."""

    written: int = 0
    batches: int = 0
    #: Attempts that failed and were made again.
    retries: int = 0
    #: Attempts that the sink was too busy for.
    busy: int = 0
    dead_letters: int = 0
    #: Events whose lease ended before they were acknowledged: they come again.
    lost: int = 0
    #: What the last attempt said, until one succeeds.
    error: str | None = None
    #: Whether it still runs.
    running: bool = False


@dataclass(frozen=True, slots=True)
class Pace:
    """How an outlet reads and how it tries."""

    #: Events of a batch; None: as many as the sink likes.
    batch: int | None = None
    #: Partitions of a batch.
    partitions: int = 100
    #: Seconds between two batches, at the least, unless one is full.
    every: float = 0.0
    #: How often an event is tried alone before it is a dead letter; None: for ever.
    attempts: int | None = 10
    backoff: Backoff = field(default_factory=Backoff)
    lease_seconds: float = 30.0
    #: Where a new group begins.
    start: Place = "beginning"
    #: Whether pushes wait for it when the queue is full (``max_depth_events``); None: as it was, a new group counts.
    counts: bool | None = None
    #: Partitions that may be stuck, each trying on its own, before the others wait too.
    stuck: int = 64

    def __post_init__(self) -> None:
        if self.batch is not None:
            check_whole("batch", self.batch, 1, 100_000)
        check_whole("partitions", self.partitions, 1, 100_000)
        check_whole("stuck", self.stuck, 1, 100_000)
        if self.attempts is not None:
            check_whole("attempts", self.attempts, 1, 1_000_000)
        check_lease_seconds(self.lease_seconds)
        # From a file of statements they come as they were written there.
        backoff: object = self.backoff
        if not isinstance(backoff, Backoff):
            raise InvalidOption(f"backoff is a Backoff(...), not {backoff!r}", option="backoff")
        every: object = self.every
        if not isinstance(every, int | float) or not 0 <= every <= 86_400:
            raise InvalidOption(f"every must be 0 to 86400 seconds, not {self.every!r}", option="every")
