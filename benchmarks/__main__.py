"""``python -m benchmarks NAME``: runs a benchmark and checks its results."""

from __future__ import annotations

import sys
from importlib import import_module

_WHAT = {
    "all": "all of the following, one after another, and the page that shows what they measured",
    "page": "nothing: makes the page again from the results that are there",
    "log": "the log: push, pop and ack, storage, lanes, history, a held transaction, and other queues on PostgreSQL",
    "drain": "the engine: how fast a queue is drained into windows, beside plain Spark",
    "windows": "the engine beside PyFlink, Pathway, Bytewax, Redis and DuckDB: the same windows into PostgreSQL",
    "ingest": "the server: events over HTTP into the log, by batch size, and what that costs",
    "http_client": "the client: CPU time of a push over HTTP, beside httpx and aiohttp; not part of all",
    "console": "the console: what five open browsers cost ingestion",
    "e2e": "everything: HTTP in, Spark, live rows out, at a rate that is held",
    "gate": "the gates: drained in how much more than the least time, how exactly, how fast when no limit binds",
    "nexmark": "Nexmark's queries as streaming SQL over generated persons, auctions and bids, held against DuckDB",
    "connector": 'format("penstock") in Spark: reading and writing a queue, beside Spark\'s own files',
    "joins": "a join of two streams, with what waits in PostgreSQL, beside Spark's own with its state stores",
    "scaling": "curves: events, keys, queries, lanes, executors, groups",
    "profile": "the engine: where the CPU time of an event and the time of a cycle go, as tables and flame graphs",
    "freshness": "the engine: how long from a push to the row in SQL, and what that costs",
}


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in _WHAT:
        print("usage: python -m benchmarks <what> [--help]\n\nwhat there is to measure:", file=sys.stderr)
        for name, meaning in _WHAT.items():
            print(f"  {name}  {meaning}", file=sys.stderr)
        return 2
    return int(import_module(f"benchmarks.{sys.argv[1]}.command").run(sys.argv[2:]))


if __name__ == "__main__":
    sys.exit(main())
