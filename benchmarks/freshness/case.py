"""Measures one case: an engine process, a load generator process, and a poller on its own connection."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from benchmarks.engines.jobs import Follow
from benchmarks.engines.process import EngineError, EngineProcess
from benchmarks.engines.results import live_rows, totals
from benchmarks.freshness.latency import latencies_ms, percentile
from benchmarks.freshness.plan import PARTITIONS, PUSHER, Case, Plan
from benchmarks.freshness.poller import Poller
from benchmarks.freshness.pusher import LoadSpec, Pushed
from benchmarks.log.checks import Checks
from benchmarks.log.server import Server
from penstock import Penstock

_ROOT = Path(__file__).parents[2]
_TIMEOUT_SECONDS = 180.0
#: With a longer delay, the engine still processes the backlog of its start.
_BEHIND_SECONDS = 3.0
_LINE_BYTES = 256 << 20


async def measure(
    case: Case,
    plan: Plan,
    server: Server,
    directory: Path,
    checks: Checks,
    observe: Callable[[EngineProcess], Awaitable[None]] | None = None,
) -> dict[str, Any]:
    """Run a case and return latency percentiles and CPU cores. ``observe``, if given, defines the measured time."""
    name = f"fresh_{case.name}"
    spec = await _load_spec(case, server.url, name, directory)
    async with AsyncExitStack() as stack:
        engine = await EngineProcess.start(case.engine, directory)
        stack.push_async_callback(engine.stop)
        await engine.follow(Follow(name, server.url, spec.target, case.eager, is_view=case.is_view))
        poller = stack.enter_context(Poller(server.url, live_rows(case.results, name)))
        pusher, began = await _start_pusher(spec), time.monotonic()
        stack.callback(_kill, pusher)

        await _until(lambda: bool(poller.seen), "the first row", engine, poller)
        await asyncio.sleep(plan.warm_up_seconds)
        await _until(lambda: _has_caught_up(case, poller, pusher, began), "the end of the backlog", engine, poller)
        since, cpu = time.monotonic(), _cpu(engine, server, poller)
        await (asyncio.sleep(plan.seconds) if observe is None else observe(engine))
        until = time.monotonic()
        cores = (_cpu(engine, server, poller) - cpu) / (until - since)

        output, _ = await asyncio.wait_for(pusher.communicate(b""), _TIMEOUT_SECONDS)
        pushed = msgspec.json.decode(output, type=Pushed)
        counted = await _all_counted(totals(case.results, name), server.url, pushed.events, engine, poller)
    checks.expect(
        f"{case.name}: every event is counted once",
        counted == pushed.events,
        f"{pushed.events} events were pushed and {counted} counted",
    )
    latencies, unseen = latencies_ms(pushed.probes, poller.seen, since, until)
    checks.expect(f"{case.name}: every probe was seen", unseen == 0, f"{unseen} of {len(pushed.probes)} were not")
    return _report(case, latencies, cores, pushed, poller)


async def _load_spec(case: Case, url: str, name: str, directory: Path) -> LoadSpec:
    if case.engine != "penstock":
        target = directory / name
        target.mkdir()
        return LoadSpec(str(target), case.rate)
    async with Penstock(url) as q:
        # No depth limit: a backlog builds up while the JVM starts.
        await q.queue(name).config(max_depth_events=None).create("hash", PARTITIONS)
    return LoadSpec(name, case.rate, url)


async def _start_pusher(spec: LoadSpec) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.freshness.pusher",
        msgspec.json.encode(spec).decode(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=_ROOT,
        limit=_LINE_BYTES,
        env=os.environ | {"PGAPPNAME": PUSHER},
    )


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()


def _has_caught_up(case: Case, poller: Poller, pusher: asyncio.subprocess.Process, began: float) -> bool:
    """Return whether the backlog of the start has been processed."""
    if pusher.returncode is not None:
        raise EngineError(f"the load generator ended with {pusher.returncode}")
    return max(seq for _, _, seq in poller.seen[-100:]) > (time.monotonic() - began - _BEHIND_SECONDS) * case.rate


def _cpu(engine: EngineProcess, server: Server, poller: Poller) -> float:
    return engine.cpu_seconds() + server.cpu_seconds() - poller.cpu_seconds()


async def _until(
    holds: Callable[[], bool], awaited: str, engine: EngineProcess, poller: Poller, timeout: float = _TIMEOUT_SECONDS
) -> None:
    until = time.monotonic() + timeout
    while not holds():
        poller.check()
        if not engine.is_running:
            raise EngineError(f"{engine.name} ended before {awaited}: see its log")
        if time.monotonic() > until:
            raise EngineError(f"{engine.name}: {awaited} did not come within {timeout:.0f} s")
        await asyncio.sleep(0.05)


async def _all_counted(query: str, url: str, events: int, engine: EngineProcess, poller: Poller) -> int:
    """Wait until this many events are counted; return the final count."""
    counted = 0

    def is_complete() -> bool:
        nonlocal counted
        row = conn.execute(query.encode()).fetchone()
        counted = int(row[0] or 0) if row is not None else 0
        return counted >= events

    with psycopg.connect(url, autocommit=True) as conn:
        await _until(is_complete, f"the last of {events} events", engine, poller)
        await asyncio.sleep(0.3)  # for the poller, and to detect events that are counted twice
        is_complete()
    return counted


def _report(case: Case, latencies: list[float], cores: float, pushed: Pushed, poller: Poller) -> dict[str, Any]:
    if not latencies:
        raise EngineError("no probe was pushed in the measured time")
    result = {
        "p50_ms": round(percentile(latencies, 0.5), 1),
        "p95_ms": round(percentile(latencies, 0.95), 1),
        "p99_ms": round(percentile(latencies, 0.99), 1),
        "cores": round(cores, 3),
        "rate": case.rate,
        "probes": len(latencies),
        "select_p99_ms": round(percentile(poller.query_ms, 0.99), 1),
        "pusher_late_p99_ms": round(percentile(pushed.late_ms, 0.99), 1),
    }
    print(
        f"  {case.name:<12} p50 {result['p50_ms']:,.0f}  p95 {result['p95_ms']:,.0f}  p99 {result['p99_ms']:,.0f} ms  "
        f"{result['cores']:.2f} cores  {result['probes']:,} probes",
        flush=True,
    )
    return result
