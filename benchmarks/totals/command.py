"""``python -m benchmarks totals``."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import psutil
import psycopg

from benchmarks.drain import load
from benchmarks.drain.bench import DrainResult, copy_out
from benchmarks.drain.dataset import Dataset
from benchmarks.drain.events import Workload
from benchmarks.engines.cpu import cpu_seconds
from benchmarks.log import server
from benchmarks.log.checks import Checks
from benchmarks.runner import check_results, describe_run, parser, run_benchmark
from penstock import Penstock, Stream
from penstock.core.settings import Settings

_PARTITIONS = 8
_TOTALS = (
    "CREATE MATERIALIZED VIEW totals AS SELECT customer, count(*) AS n, sum(amount) AS total, max(amount) AS most "
    "FROM events_{keys} GROUP BY customer"
)
_EXPECTED = """
SELECT customer, count(*)::BIGINT AS n, sum(amount)::DECIMAL(18, 2) AS total, max(amount)::DECIMAL(18, 2) AS most
FROM read_json(?, format = 'newline_delimited', columns = {customer: 'VARCHAR', amount: 'DECIMAL(18, 2)'}) GROUP BY 1
"""
_FOUND = """
SELECT * FROM read_csv(?, header = false, columns = {customer: 'VARCHAR', n: 'BIGINT', total: 'DECIMAL(18, 2)',
    most: 'DECIMAL(18, 2)'})
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run."""

    events: int
    keys: tuple[int, ...]
    #: Drains of each number of keys. The first one is a warm-up.
    rounds: int


FULL = Plan(events=3_000_000, keys=(10_000, 1_000_000), rounds=4)
QUICK = Plan(events=100_000, keys=(10_000,), rounds=2)


def run(arguments: Sequence[str]) -> int:
    """Run the benchmark. Return 0 if every check passed."""
    options = parser("totals", "Drain a queue into running totals per key, as a materialized view.")
    return run_benchmark("totals", _measure, options.parse_args(arguments))


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    plan = QUICK if options.quick else FULL
    directory = Path(tempfile.mkdtemp(prefix="penstock-totals-"))
    checks = Checks()
    try:
        with server.running() as running:
            result = describe_run(_describe(plan), running, checks)
            async with Penstock(running.url) as q:
                for keys in plan.keys:
                    with checks.catching(f"{keys} keys"):
                        result[f"keys_{keys}"] = await _drain_totals(q, running, plan, keys, directory, checks)
        return result | check_results(checks)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _describe(plan: Plan) -> str:
    keys = " and ".join(f"{each:,}" for each in plan.keys)
    return (
        f"{plan.events:,} events of about 90 bytes of JSON in a queue with {_PARTITIONS} partitions. A materialized "
        f"view computes count, sum and maximum per key, of {keys} keys. Each is drained {plan.rounds} times in one "
        "JVM; the first is a warm-up, the result is the median of the others. Every row is compared with DuckDB's."
    )


async def _drain_totals(
    q: Penstock, running: server.Server, plan: Plan, keys: int, directory: Path, checks: Checks
) -> dict[str, float]:
    dataset = Dataset(Workload(keys), directory / str(keys))
    files = dataset.extend(plan.events)
    await load.create(q, f"events_{keys}", partitions=_PARTITIONS)
    await load.load(q, f"events_{keys}", files)
    drains = []
    for number in range(plan.rounds):
        name = f"totals_{keys}_{number}"
        drains.append(await asyncio.to_thread(_drain, running, keys, plan.events, name))
        drains[-1].print_summary(name)
        rows = directory / "rows.csv"
        copy_out(running.url, f"SELECT customer, n, total, most FROM penstock_live.{name}", rows)  # noqa: S608 - our name
        checks.expect(f"{keys} keys: the rows are DuckDB's", _has_expected_rows(dataset, rows))
    measured = drains[1:]
    return measured[-1].result() | {"events_per_s": round(median(each.per_second for each in measured))}


def _drain(running: server.Server, keys: int, events: int, name: str) -> DrainResult:
    stream = Stream.sql(_TOTALS.format(keys=keys))
    with psycopg.connect(running.url, autocommit=True) as conn:
        conn.execute("CHECKPOINT")
    process = psutil.Process()
    engine, database, began = cpu_seconds(process), running.cpu_seconds(), time.perf_counter()
    query = stream.start(name, settings=Settings(database_url=running.url), available_now=True, report_seconds=0)
    query.wait()
    seconds, millions = time.perf_counter() - began, events / 1e6
    return DrainResult(
        events,
        seconds,
        query.status.cycles,
        (cpu_seconds(process) - engine) / millions,
        (running.cpu_seconds() - database) / millions,
    )


def _has_expected_rows(dataset: Dataset, rows: Path) -> bool:
    with duckdb.connect() as db:
        db.execute(f"CREATE TABLE expected AS {_EXPECTED}", [[str(path) for path in dataset.files]])
        db.execute(f"CREATE TABLE found AS {_FOUND}", [str(rows)])
        (differences,) = db.execute(
            "SELECT count(*) FROM ("
            "(FROM expected EXCEPT ALL FROM found) UNION ALL (FROM found EXCEPT ALL FROM expected))"
        ).fetchone() or (1,)
    return bool(differences == 0)
