"""The jobs and responses of an engine, the same for Penstock and plain Spark."""

from __future__ import annotations

import msgspec


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Count, sum and maximum per key and 5 s window of all events there are, into live rows and closed windows."""

    #: A name that is not taken: of the query, and of its tables.
    name: str
    url: str
    #: The queue, or the directory of NDJSON files.
    source: str
    #: Events in a batch; None: as many as the engine likes best.
    batch: int | None = None
    #: Whether a Python function takes part, which doubles each amount.
    python_map: bool = False
    #: So many queries do the same at once, each for itself, in one Spark.
    queries: int = 1
    #: Spark's master, where it is not this machine; a process has one for all its jobs.
    master: str | None = None


class Closing(msgspec.Struct, frozen=True):
    """Windows by the time in the events, ``ts``, which go to a queue when they close. Plain Spark has none of it."""

    sink: str
    window_seconds: int
    #: How far the events may be out of order.
    lateness_seconds: int


class Follow(msgspec.Struct, frozen=True, tag="follow"):
    """Count and highest ``seq`` per key and minute of the events that come, until the process is terminated."""

    name: str
    url: str
    source: str
    #: As quick as it can be, or the setting that spares the machine, which is the default.
    eager: bool = True
    #: The total of the amounts as well.
    totals: bool = False
    #: In place of minutes by the clock, which stay in their table.
    closing: Closing | None = None


class Result(msgspec.Struct, frozen=True):
    """The location of the results of a drain."""

    #: SELECTs of key, start of the window in ms, count, total, max and whether the window is closed.
    select: str
    #: The queue that the closed windows went to.
    sink: str | None = None


class Drained(msgspec.Struct, frozen=True):
    """The duration of a drain, and the location of the result of each query."""

    seconds: float
    batches: int
    results: list[Result]


Job = Drain | Follow
