"""The systems that count windows, the numbers of events, and the notes of the report."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.drain.events import Work
from benchmarks.drain.stock import FILE_EVENTS

PARTITIONS = 8
#: Of event time, whatever the size: each key has as many windows, of as many events.
SPAN_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Size:
    """A stock of events."""

    events: int
    keys: int

    @property
    def work(self) -> Work:
        return Work(self.keys, self.events // SPAN_SECONDS)

    @property
    def file_events(self) -> int:
        return min(self.events, FILE_EVENTS)


@dataclass(frozen=True, slots=True)
class Peer:
    """An engine of another make; ``name`` is that of its environment, too."""

    key: str
    name: str
    note: str
    arguments: tuple[str, ...] = ()
    #: So many times less work, of the same shape, since it would take too long.
    less: int = 1
    with_max: bool = True
    #: What its table has for sums.
    numbers: str = "numeric"


PEERS = (
    Peer(
        "flink",
        "flink",
        "streaming SQL without checkpoints, in a JVM that is kept; windows close when all is read, since it may read "
        "files in any order; rows as CSV, then one COPY, since its connector to PostgreSQL is not on PyPI",
    ),
    Peer(
        "pathway",
        "pathway",
        "bounded, with its own writer to PostgreSQL; amounts are floats",
        numbers="double precision",
    ),
    Peer("bytewax", "bytewax", "one worker, one COPY at the end; amounts are floats", less=10),
    Peer(
        "redis",
        "redis",
        "HINCRBY, HINCRBYFLOAT, EXPIRE, HINCRBY for each event, each waited for; no maximum; windows that are over are "
        "read and copied to PostgreSQL; nothing survives a crash",
        less=100,
        with_max=False,
    ),
    Peer(
        "redis_pipelined",
        "redis",
        "the same commands for 100 events in one message",
        ("--pipelined",),
        less=10,
        with_max=False,
    ),
    Peer("duckdb", "duckdb", "one statement over all files, then one COPY: no stream, no state, no recovery"),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run."""

    size: Size
    rounds: int
    warm_ups: int
    #: A batch of plain Spark, in whole files.
    batch: int

    def size_for(self, peer: Peer) -> Size:
        return Size(self.size.events // peer.less, self.size.keys // peer.less)


FULL = Plan(Size(2_000_000, 10_000), rounds=3, warm_ups=3, batch=400_000)
QUICK = Plan(Size(100_000, 10_000), rounds=1, warm_ups=0, batch=50_000)
