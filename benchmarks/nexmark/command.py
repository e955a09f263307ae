"""``python -m benchmarks nexmark``."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil

from benchmarks.engines.cpu import cpu_seconds
from benchmarks.log import server
from benchmarks.nexmark.generator import NexmarkEvent, generate
from benchmarks.nexmark.oracle import PARTS, comparable, expected_results
from benchmarks.runner import describe_run, parser, run_benchmark
from penstock import Penstock, Stream
from penstock.core.settings import Settings
from penstock.log.event import Event
from penstock.stream.statements.application import Application
from penstock.stream.statements.parser import parse_application

QUICK, FULL = 10_000, 500_000
_BATCH = 5_000


def run(arguments: Sequence[str]) -> int:
    """Run the benchmark. Return 0 if every check passed."""
    return run_benchmark("nexmark", _measure, _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("nexmark", "Run the Nexmark queries and compare each result with DuckDB's.")
    options.add_argument("--events", type=int, metavar="N", help="number of events")
    options.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the generator")
    options.add_argument(
        "--only", nargs="+", choices=list(PARTS), default=list(PARTS), metavar="QUERY", help="queries to run"
    )
    return options.parse_args(arguments)


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    count = options.events or (QUICK if options.quick else FULL)
    events = list(generate(count, seed=options.seed))
    application = parse_application(Stream, (Path(__file__).parent / "queries.sql").read_text(), "queries.sql")
    work = (
        f"{count:,} persons, auctions and bids in three queues. Each query is drained over them, one at a time, and "
        "its rows are compared with DuckDB's."
    )
    with server.running() as running:
        result: dict[str, Any] = describe_run(work, running) | {"events": count, "seed": options.seed, "queries": {}}
        async with Penstock(running.url) as q:
            appended = await _fill(q, application, events)
            for name in options.only:
                took = await _run(running, application, name)
                rows = await _emitted(q, name)
                exact = rows == await asyncio.to_thread(expected_results, events, appended, name)
                result["queries"][name] = {**took, "rows": len(rows), "exact": exact}
                print(f"{name}: {took['seconds']} s, {len(rows):,} rows, {'exact' if exact else 'WRONG'}", flush=True)
    result["ok"] = all(query["exact"] for query in result["queries"].values())
    return result


async def _fill(q: Penstock, application: Application, events: list[NexmarkEvent]) -> dict[str, list[datetime]]:
    """Push all events. Return the append times of the bids in order."""
    by_queue: dict[str, list[NexmarkEvent]] = defaultdict(list)
    for event in events:
        by_queue[event.queue].append(event)
    for definition in application.queues.values():
        queue = q.queue(definition.name)
        await queue.config(max_depth_events=None).create("hash", definition.partitions)
        queue_events = by_queue[definition.name]
        for start in range(0, len(queue_events), _BATCH):
            await queue.push([{"key": event.key, "data": event.data} for event in queue_events[start : start + _BATCH]])
    stored = {_identity(event.data): event.appended_at for event in await _events(q, "bid")}
    return {"bid": [stored[_identity(event.data)] for event in by_queue["bid"]]}


def _identity(bid: dict[str, Any]) -> tuple[Any, ...]:
    return bid["auction"], bid["bidder"], bid["price"], bid["dateTime"]


async def _run(running: server.Server, application: Application, name: str) -> dict[str, Any]:
    """Drain the available events through all parts of a query."""
    began, events, before = time.monotonic(), 0, _cpu(running)
    for part in PARTS[name]:
        definition = application.queries[part]
        stream: Any = definition.stream
        options = {"available_now": True, "flush": True, "report_seconds": 0, **definition.options}
        query = await asyncio.to_thread(stream.start, part, settings=Settings(database_url=running.url), **options)
        await asyncio.to_thread(query.wait)
        events += query.status.events_in
    seconds = time.monotonic() - began
    return {
        "seconds": round(seconds, 1),
        "events_read": events,
        "events_per_s": round(events / seconds),
        "cpu_s_per_million": round((_cpu(running) - before) / events * 1e6, 2),
    }


def _cpu(running: server.Server) -> float:
    """Return the CPU seconds of this process tree (with Spark) and PostgreSQL so far."""
    return cpu_seconds(psutil.Process()) + running.cpu_seconds()


async def _emitted(q: Penstock, queue: str) -> list[Any]:
    return comparable(json.loads(event.raw, parse_float=Decimal) for event in await _events(q, queue))


async def _events(q: Penstock, queue: str) -> list[Event]:
    """Return all events of a queue."""
    handle = q.queue(queue)
    events: list[Event] = []
    counts = {info.name: info.partition_count or 0 for info in await q.queues()}
    for partition in range(counts[queue]):
        offset = 0
        while batch := await handle.fetch(str(partition), offset, 10_000):
            events += batch
            offset += len(batch)
    return events
