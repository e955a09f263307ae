"""The queries, the kind of their results, and the sizes of a run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.db.statements import Statements

PENSTOCK = Statements("benchmarks.nexmark", "penstock.sql")
FLINK = Statements("benchmarks.nexmark", "flink.sql")
DUCKDB = Statements("benchmarks.nexmark", "duckdb.sql")
#: The statements that each query of Flink needs before its own.
FLINK_SETUP = ("person", "auction", "bid", "side_input", "count_char")


class Result(StrEnum):
    """Where Penstock writes the rows."""

    QUEUE = "queue"
    VIEW = "view"
    #: Windows that close, in a queue. They are compared at the end only.
    WINDOWS = "windows"
    FILES = "files"


@dataclass(frozen=True, slots=True)
class Query:
    """A Nexmark query."""

    name: str
    title: str
    result: Result
    #: The tables that it reads.
    reads: tuple[str, ...] = ("bid",)
    #: The columns that identify a row of Flink's result, if Flink updates it.
    flink_key: tuple[str, ...] = ()
    #: The part of Flink's rows that is compared, if not all: Flink breaks ties in any order, and has its own clock.
    flink_compared: str = "SELECT * FROM {rows}"
    #: Why Flink cannot run it.
    flink_refuses: str | None = None
    #: A difference between the engines, for the page.
    note: str = ""


_BOTH = ("auction", "bid")
QUERIES: dict[str, Query] = {
    query.name: query
    for query in (
        Query("q0", "pass through", Result.QUEUE),
        Query("q1", "convert the currency", Result.QUEUE),
        Query("q2", "select some auctions", Result.QUEUE),
        Query("q3", "auctions with their sellers", Result.VIEW, ("person", "auction")),
        Query("q4", "mean closing price per category", Result.VIEW, _BOTH, ("category",)),
        Query("q5", "hot items", Result.VIEW),
        Query(
            "q6",
            "mean price of a seller's last ten",
            Result.VIEW,
            _BOTH,
            flink_refuses="a bounded OVER frame cannot be ordered by a column that is not a time attribute",
        ),
        Query("q7", "highest bids", Result.VIEW),
        Query("q8", "new users who sell", Result.VIEW, ("person", "auction")),
        Query(
            "q9",
            "winning bids",
            Result.VIEW,
            _BOTH,
            ("id",),
            "SELECT id, seller, category, price, bid_dateTime FROM {rows}",
        ),
        Query("q10", "log to files", Result.FILES, note="Parquet files; Flink writes CSV"),
        Query("q11", "sessions", Result.WINDOWS),
        Query(
            "q12",
            "processing-time windows",
            Result.WINDOWS,
            flink_key=("bidder", "starts"),
            flink_compared="SELECT bidder, sum(bid_count) FROM {rows} GROUP BY bidder",
            note="the time of the append; for Flink a GROUP BY of the clock, because TUMBLE over PROCTIME() loses the "
            "last window of a bounded input",
        ),
        Query(
            "q13",
            "side input",
            Result.QUEUE,
            note="a regular join for Flink: no connector in its package supports lookups",
        ),
        Query("q14", "calculation with a UDF in Python", Result.QUEUE),
        Query("q15", "bids per day", Result.VIEW, flink_key=("day",)),
        Query("q16", "bids per channel and day", Result.VIEW, flink_key=("channel", "day")),
        Query("q17", "bids per auction and day", Result.VIEW, flink_key=("auction", "day")),
        Query(
            "q18",
            "last bids",
            Result.VIEW,
            flink_key=("bidder", "auction"),
            flink_compared="SELECT auction, bidder, dateTime FROM {rows}",
        ),
        Query(
            "q19",
            "top ten bids",
            Result.VIEW,
            flink_key=("auction", "rank_number"),
            flink_compared="SELECT auction, price, rank_number FROM {rows}",
        ),
        Query("q20", "bids with their auctions", Result.VIEW, _BOTH),
        Query("q21", "channel ids", Result.QUEUE),
        Query("q22", "directories of URLs", Result.QUEUE),
    )
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run."""

    events: int
    #: Measured runs of each engine, after one warm-up. The result is the median.
    rounds: int
    #: Cycles of the warm-up, after some of which the rows are compared.
    cycles: int


FULL = Plan(events=1_000_000, rounds=3, cycles=8)
QUICK = Plan(events=50_000, rounds=1, cycles=4)
