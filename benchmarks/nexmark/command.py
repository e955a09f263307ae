"""The command: which of Nexmark's queries, over how many events, and one JSON object as the last line."""

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
from benchmarks.measuring import introduce, measured, parser
from benchmarks.nexmark.answers import PARTS, answers, comparable
from benchmarks.nexmark.generator import Made, generate
from penstock import Penstock, Stream
from penstock.core.settings import Settings
from penstock.log.event import Event
from penstock.stream.statements.application import Application
from penstock.stream.statements.parser import parse_application

QUICK, FULL = 10_000, 500_000
_BATCH = 5_000


def run(arguments: Sequence[str]) -> int:
    """Measure what the arguments ask for; 0 if every check held."""
    return measured("nexmark", _measure, _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("nexmark", "Run Nexmark's queries, and hold each result against DuckDB's.")
    options.add_argument("--events", type=int, metavar="N", help="how many events")
    options.add_argument("--seed", type=int, default=1, metavar="N", help="which events")
    options.add_argument(
        "--only", nargs="+", choices=list(PARTS), default=list(PARTS), metavar="QUERY", help="some queries"
    )
    return options.parse_args(arguments)


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    count = options.events or (QUICK if options.quick else FULL)
    events = list(generate(count, seed=options.seed))
    application = parse_application(Stream, (Path(__file__).parent / "queries.sql").read_text(), "queries.sql")
    work = (
        f"{count:,} persons, auctions and bids in three queues; each query is drained over them, alone, and its rows "
        "are held against DuckDB's answer to the same question."
    )
    with server.running() as running:
        result: dict[str, Any] = introduce(work, running) | {"events": count, "seed": options.seed, "queries": {}}
        async with Penstock(running.url) as q:
            appended = await _fill(q, application, events)
            for name in options.only:
                took = await _run(running, application, name)
                found = await _emitted(q, name)
                right = found == await asyncio.to_thread(answers, events, appended, name)
                result["queries"][name] = {**took, "rows": len(found), "exact": right}
                print(f"{name}: {took['seconds']} s, {len(found):,} rows, {'exact' if right else 'WRONG'}", flush=True)
    result["ok"] = all(query["exact"] for query in result["queries"].values())
    return result


async def _fill(q: Penstock, application: Application, events: list[Made]) -> dict[str, list[datetime]]:
    """Push everything; returns when each event of each queue came, in order."""
    by_queue: dict[str, list[Made]] = defaultdict(list)
    for event in events:
        by_queue[event.queue].append(event)
    for wanted in application.queues.values():
        queue = q.queue(wanted.name)
        await queue.config(max_depth_events=None).create("hash", wanted.partitions)
        some = by_queue[wanted.name]
        for start in range(0, len(some), _BATCH):
            await queue.push([{"key": event.key, "data": event.data} for event in some[start : start + _BATCH]])
    stored = {_identity(event.data): event.appended_at for event in await _events(q, "bid")}
    return {"bid": [stored[_identity(event.data)] for event in by_queue["bid"]]}


def _identity(bid: dict[str, Any]) -> tuple[Any, ...]:
    return bid["auction"], bid["bidder"], bid["price"], bid["dateTime"]


async def _run(running: server.Server, application: Application, name: str) -> dict[str, Any]:
    """Drain the available events through all parts of a query."""
    began, events, before = time.monotonic(), 0, _cpu(running)
    for part in PARTS[name]:
        wanted = application.queries[part]
        stream: Any = wanted.stream
        options = {"available_now": True, "flush": True, "report_seconds": 0, **wanted.options}
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
    """CPU seconds of everything so far: Spark is below this process."""
    return cpu_seconds(psutil.Process()) + running.cpu_seconds()


async def _emitted(q: Penstock, queue: str) -> list[Any]:
    return comparable(json.loads(event.raw, parse_float=Decimal) for event in await _events(q, queue))


async def _events(q: Penstock, queue: str) -> list[Event]:
    """All events of a queue."""
    handle = q.queue(queue)
    found: list[Event] = []
    counts = {made.name: made.partition_count or 0 for made in await q.queues()}
    for partition in range(counts[queue]):
        offset = 0
        while some := await handle.fetch(str(partition), offset, 10_000):
            found += some
            offset += len(some)
    return found
