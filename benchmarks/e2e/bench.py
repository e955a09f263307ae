"""End to end: HTTP server, engine, PostgreSQL and load generator in their own processes, and a poller."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import psutil
import psycopg

from benchmarks.e2e import windows
from benchmarks.e2e.events import expected
from benchmarks.e2e.pusher import LoadSpec, Pushed
from benchmarks.engines.cpu import cpu_seconds
from benchmarks.engines.jobs import Closing, Follow
from benchmarks.engines.process import EngineError, EngineProcess
from benchmarks.engines.results import live_rows, sums
from benchmarks.freshness.latency import latencies_ms, percentile
from benchmarks.freshness.poller import Poller
from benchmarks.ingest.bench import http_server
from benchmarks.log.checks import Checks
from benchmarks.log.server import Server
from penstock import Penstock

_ROOT = Path(__file__).parents[2]
_PARTITIONS = 8
_TIMEOUT_SECONDS = 300.0
_LINE_BYTES = 1 << 30
#: With the default limit, the server would apply backpressure after a few seconds at full rate.
_MAX_DEPTH = 2_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """A run: events per second (None: full speed), warm-up and measured time."""

    name: str
    rate: int | None
    warm_up_seconds: float
    seconds: float
    batch: int = 1000
    connections: int = 16
    #: A number of events instead of a time.
    events: int | None = None
    #: Event-time windows that go to a sink queue, in addition to live rows.
    closing: Closing | None = None


async def measure(plan: Plan, server: Server, directory: Path, checks: Checks) -> dict[str, Any]:
    """Run and return the figures."""
    name = f"e2e_{plan.name}"
    async with Penstock(server.url) as q:
        await q.queue(name).config(max_depth_events=_MAX_DEPTH).create("hash", _PARTITIONS)
    async with AsyncExitStack() as stack:
        engine = await EngineProcess.start("penstock", directory)
        stack.push_async_callback(engine.stop)
        web_url, web = stack.enter_context(http_server(server.url, 1))
        await engine.follow(Follow(name, server.url, name, totals=True, closing=plan.closing))
        poller = stack.enter_context(Poller(server.url, live_rows("penstock", name)))

        def problem() -> str | None:
            poller.check()
            if not engine.is_running:
                return "the engine ended: see its log"
            return "the server ended" if web.status() == psutil.STATUS_ZOMBIE else None

        # Wait for the JVM with one batch, so that no backlog builds up.
        first = await _start_pusher(LoadSpec(web_url, name, plan.batch, 1, end=plan.batch))
        output, _ = await first.communicate()
        journal = msgspec.json.decode(output, type=Pushed).journal
        await _until(lambda: bool(poller.seen), "the first row", problem)
        spec = LoadSpec(web_url, name, plan.batch, plan.connections, plan.rate, plan.batch, plan.events)
        pusher = await _start_pusher(spec)
        stack.callback(_kill, pusher)
        await asyncio.sleep(plan.warm_up_seconds)
        since = time.monotonic()
        before = _spent(engine, server, web, pusher)
        if plan.events is None:
            await asyncio.sleep(plan.seconds)
            until, after = time.monotonic(), _spent(engine, server, web, pusher)
        output, _ = await pusher.communicate(b"")
        pushed = msgspec.json.decode(output, type=Pushed)
        counted = await _all_counted(name, server.url, pushed.end, problem)
        if plan.events is not None:
            until, after = time.monotonic(), _spent(engine, server, web, pusher) | {"pusher": pushed.cpu_seconds}
    _check(name, server.url, pushed, counted, checks)
    latencies, unseen = latencies_ms(pushed.probes, poller.seen, since, until)
    checks.expect(f"{plan.name}: every probe was seen", unseen == 0, f"{unseen} of {len(pushed.probes)} were not")
    seconds = until - since
    if plan.events is not None:
        result: dict[str, Any] = {"events": pushed.end, "seconds": round(seconds, 1)}
        result["events_per_s"] = round((pushed.end - plan.batch) / seconds)
    else:
        request_ms = [ms for at, ms in pushed.requests_ms if since <= at < until]
        result = {"events_per_s": round(len(request_ms) * plan.batch / seconds)}
        result["request_p50_ms"] = round(percentile(request_ms, 0.5), 1)
        result["request_p99_ms"] = round(percentile(request_ms, 0.99), 1)
    result["cores"] = {part: round((cpu - before[part]) / seconds, 2) for part, cpu in after.items()}
    if plan.closing is not None:
        result |= await windows.check(name, server.url, journal + pushed.journal, plan.closing, checks)
    result |= {
        "freshness_p50_ms": round(percentile(latencies, 0.5), 1),
        "freshness_p99_ms": round(percentile(latencies, 0.99), 1),
        "refused": pushed.refused,
        "probes": len(latencies),
    }
    print(f"  {plan.name}: {result}", flush=True)
    return result


def _check(name: str, url: str, pushed: Pushed, counted: int, checks: Checks) -> None:
    checks.expect(
        f"{name}: every event is counted once",
        counted == pushed.end,
        f"{pushed.end} events were pushed and {counted} counted",
    )
    with psycopg.connect(url) as conn:
        rows = conn.execute(sums("penstock", name).encode()).fetchall()
    totals = {key: (int(count), Decimal(total)) for key, count, total in rows}
    checks.expect(f"{name}: count and total of every key are DuckDB's", totals == expected(pushed.end))


def _spent(
    engine: EngineProcess, server: Server, web: psutil.Process, pusher: asyncio.subprocess.Process
) -> dict[str, float]:
    return {
        "engine": engine.cpu_seconds(),
        "postgresql": server.cpu_seconds(),
        "server": cpu_seconds(web),
        "pusher": cpu_seconds(psutil.Process(pusher.pid)) if pusher.returncode is None else 0.0,
    }


async def _start_pusher(spec: LoadSpec) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.e2e.pusher", msgspec.json.encode(spec).decode()),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=_ROOT,
        limit=_LINE_BYTES,
    )


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()


async def _until(holds: Callable[[], bool], awaited: str, problem: Callable[[], str | None]) -> None:
    until = time.monotonic() + _TIMEOUT_SECONDS
    while not holds():
        if (failure := problem()) is not None:
            raise EngineError(f"{failure} (before {awaited})")
        if time.monotonic() > until:
            raise EngineError(f"{awaited} did not come within {_TIMEOUT_SECONDS:.0f} s")
        await asyncio.sleep(0.1)


async def _all_counted(name: str, url: str, events: int, problem: Callable[[], str | None]) -> int:
    """Wait until this many events are counted; return the final count."""
    counted = 0

    def is_complete() -> bool:
        nonlocal counted
        rows = conn.execute(sums("penstock", name).encode()).fetchall()
        counted = sum(int(count) for _, count, _ in rows)
        return counted >= events

    with psycopg.connect(url, autocommit=True) as conn:
        await _until(is_complete, f"the last of {events} events", problem)
        await asyncio.sleep(0.5)  # for the poller, and to detect events that are counted twice
        is_complete()
    return counted
