"""Jobs and results of an engine: Penstock or plain Spark."""

from __future__ import annotations

import msgspec


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Count, sum and maximum per key and 5 s window of all available events, into live rows and closed windows."""

    #: An unused name for the query and its tables.
    name: str
    url: str
    #: The queue, or the directory of NDJSON files.
    source: str
    #: Events per batch. None: the default of the engine.
    batch: int | None = None
    #: Whether a Python function doubles each amount.
    python_map: bool = False
    #: The number of identical concurrent queries in one Spark session.
    queries: int = 1
    #: The Spark master. None: local. It is the same for all jobs of a process.
    master: str | None = None


class Closing(msgspec.Struct, frozen=True):
    """Windows by the event time ``ts`` that go to a queue when they close. Not implemented for plain Spark."""

    sink: str
    window_seconds: int
    lateness_seconds: int


class Follow(msgspec.Struct, frozen=True, tag="follow"):
    """Count and highest ``seq`` per key and minute of new events, until the process is terminated."""

    name: str
    url: str
    source: str
    #: Whether cycles run without a pause. False: the default interval.
    eager: bool = True
    #: Whether there are no windows: one row per key, a materialized view.
    is_view: bool = False
    #: Whether to sum the amounts.
    totals: bool = False
    #: Event-time windows instead of processing-time minutes.
    closing: Closing | None = None


class Result(msgspec.Struct, frozen=True):
    """Where to read the results of a drain."""

    #: A SELECT of key, window start in ms, count, total, max, and whether the window is closed.
    select: str
    #: The queue of the closed windows.
    sink: str | None = None


class Drained(msgspec.Struct, frozen=True):
    """The duration of a drain, and the results of each query."""

    seconds: float
    batches: int
    results: list[Result]


Job = Drain | Follow
