"""Peers, workload sizes, and notes for the page."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.drain.dataset import FILE_EVENTS
from benchmarks.drain.events import Workload

PARTITIONS = 8
#: Event time of a dataset of any size, so that each key has the same number of windows and events.
SPAN_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a dataset."""

    events: int
    keys: int

    @property
    def workload(self) -> Workload:
        return Workload(self.keys, self.events // SPAN_SECONDS)

    @property
    def file_events(self) -> int:
        return min(self.events, FILE_EVENTS)


@dataclass(frozen=True, slots=True)
class Peer:
    """Another engine. ``name`` is also the name of its environment."""

    key: str
    name: str
    note: str
    arguments: tuple[str, ...] = ()
    #: Divisor of the events and keys, for slow engines.
    divisor: int = 1
    with_max: bool = True
    #: The column type of sums in its table.
    number_type: str = "numeric"


PEERS = (
    Peer(
        "flink",
        "flink",
        "streaming SQL without checkpoints; the JVM is reused; windows close after all events, because files are read "
        "in any order; rows as CSV, then one COPY, because its PostgreSQL connector is not on PyPI",
    ),
    Peer(
        "pathway",
        "pathway",
        "bounded input, its own PostgreSQL writer; amounts are floats",
        number_type="double precision",
    ),
    Peer("bytewax", "bytewax", "one worker, one COPY at the end; amounts are floats", divisor=10),
    Peer(
        "redis",
        "redis",
        "HINCRBY, HINCRBYFLOAT, EXPIRE, HINCRBY per event, one round trip each; no maximum; closed windows are read "
        "and copied to PostgreSQL; no persistence",
        divisor=100,
        with_max=False,
    ),
    Peer(
        "redis_pipelined",
        "redis",
        "the same commands in pipelines of 100 events",
        ("--pipelined",),
        divisor=10,
        with_max=False,
    ),
    Peer("duckdb", "duckdb", "one statement over all files, then one COPY: no streaming, state or recovery"),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run."""

    size: Size
    rounds: int
    warm_ups: int
    #: The batch size of plain Spark, in whole files.
    batch: int

    def size_for(self, peer: Peer) -> Size:
        return Size(self.size.events // peer.divisor, self.size.keys // peer.divisor)


FULL = Plan(Size(2_000_000, 10_000), rounds=3, warm_ups=3, batch=400_000)
QUICK = Plan(Size(100_000, 10_000), rounds=1, warm_ups=0, batch=50_000)
