"""``python -m benchmarks NAME``: runs a benchmark and checks its results."""

from __future__ import annotations

import sys
from importlib import import_module

_BENCHMARKS = {
    "all": "all of the benchmarks below, then the results page",
    "page": "no measurement: renders the results page from the stored results",
    "log": "the log: push, pop and ack, storage, key partitions, history, a held transaction; and peers",
    "drain": "the engine: throughput of draining a queue into windows; with plain Spark",
    "windows": "the engine and PyFlink, Pathway, Bytewax, Redis and DuckDB: the same windows into PostgreSQL",
    "ingest": "the server: throughput, latency and CPU time of HTTP ingestion by batch size",
    "http_client": "the client: CPU time of a push over HTTP, compared with httpx and aiohttp; not part of all",
    "console": "the console: ingestion throughput lost to five open browsers",
    "e2e": "end to end: HTTP, Spark, live rows, at a fixed rate",
    "gate": "the gates: drain time against the minimum, accuracy of the rate, throughput without a binding limit",
    "nexmark": "the 23 Nexmark queries, with PyFlink SQL",
    "connector": 'format("penstock") in Spark: reading and writing a queue, compared with files',
    "joins": "a join of two streams with its state in PostgreSQL, compared with Spark's state stores",
    "scaling": "scaling curves: events, keys, queries, key partitions, executors, groups",
    "profile": "the engine: CPU time per event and wall-clock time per cycle by component, with flame graphs",
    "sql": "push from SQL, beside pgmq; not part of all",
    "totals": "running totals per key, as a materialized view; not part of all",
    "freshness": "the engine: latency from a push to the row in SQL, and CPU time",
}


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in _BENCHMARKS:
        print("usage: python -m benchmarks NAME [--help]\n\nbenchmarks:", file=sys.stderr)
        for name, description in _BENCHMARKS.items():
            print(f"  {name}  {description}", file=sys.stderr)
        return 2
    return int(import_module(f"benchmarks.{sys.argv[1]}.command").run(sys.argv[2:]))


if __name__ == "__main__":
    sys.exit(main())
