"""Measures one batch size: a load generator and a server process. The log is compared with the responses."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import psutil

from benchmarks.engines.cpu import cpu_seconds
from benchmarks.ingest.plan import CONNECTIONS, PARTITIONS, Plan
from benchmarks.log.checks import Checks
from benchmarks.log.server import Server
from penstock import Penstock


@dataclass
class Cell:
    """The results of one batch size over all rounds."""

    batch: int
    rates: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    events: int = 0
    cpu: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def summary(self) -> dict[str, Any]:
        ordered, rates = sorted(self.latencies), sorted(self.rates)
        millions = self.events / 1e6
        return {
            "events_per_s": round(rates[len(rates) // 2]),
            "p50_ms": round(ordered[len(ordered) // 2] * 1000, 2),
            "p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1000, 2),
            "rounds": [round(rate) for rate in self.rates],
            "cpu_s_per_million": {process: round(spent / millions, 2) for process, spent in self.cpu.items()},
        }


@contextmanager
def http_server(database_url: str, workers: int) -> Iterator[tuple[str, psutil.Process]]:
    """Run ``penstock serve`` without the request log. Yield its URL and process."""
    command = [sys.executable, "-m", "penstock", "serve", "--port", "0", "--request-log", "none"]
    environment = {**os.environ, "PENSTOCK_DATABASE_URL": database_url}
    process = subprocess.Popen(
        [*command, "--workers", str(workers)], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        line = ""
        while "Listening on " not in line:
            line = process.stdout.readline() if process.stdout is not None else ""
            if not line:
                raise RuntimeError(f"the server ended with {process.wait()}")
        yield line.split("Listening on ")[1].strip(), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)


async def measure(batch: int, plan: Plan, running: Server, workers: int, checks: Checks) -> dict[str, Any]:
    """Measure a batch size with its own queue and server process."""
    cell = Cell(batch)
    queue = f"events_{batch}"
    sent: Counter[int] = Counter()
    async with Penstock(running.url) as q:
        await q.queue(queue).config(dedup_window_seconds=0, max_depth_events=None).create(partitions=PARTITIONS)
        with http_server(running.url, workers) as (url, process):
            await run_generator(url, queue, batch, plan.warm_up_seconds, sent)
            for _ in range(plan.rounds):
                before = cpu_seconds(process), running.cpu_seconds()
                report = await run_generator(url, queue, batch, plan.seconds, sent)
                events = sum(report["accepted"]) * batch
                cell.cpu["server"] += cpu_seconds(process) - before[0]
                cell.cpu["postgresql"] += running.cpu_seconds() - before[1]
                cell.cpu["generator"] += report["cpu"]
                cell.events += events
                cell.rates.append(events / report["seconds"])
                cell.latencies += report["latencies"]
                accepted = not report["refused"] and not report["lost"]
                checks.expect(
                    f"batches of {batch}: every request is accepted", accepted, f"{report['refused']}, {report['lost']}"
                )
        await check_log(q, queue, batch, sent, checks)
        await q.queue(queue).delete()
    return cell.summary()


async def run_generator(
    url: str,
    queue: str,
    batch: int,
    seconds: float,
    sent: Counter[int],
    per_second: float | None = None,
    on_start: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Run the load generator and return its report. ``sent`` counts the accepted requests of each body.

    ``on_start`` is called when the load starts.
    """
    address = urlsplit(url)
    arguments = [str(part) for part in (address.hostname, address.port, queue, batch, CONNECTIONS, seconds)]
    arguments += [] if per_second is None else [str(per_second)]
    # A file instead of a pipe: a part of a report of one megabyte was once lost in a pipe.
    with tempfile.TemporaryFile() as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.ingest.generator", *arguments),
            stdout=output,
            stderr=asyncio.subprocess.PIPE,
        )
        if process.stderr is not None and await process.stderr.readline() == b"begin\n":
            on_start()
        _, errors = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"the load generator ended with {process.returncode}: {errors.decode()}")
        output.seek(0)
        report: dict[str, Any] = json.load(output)
    for body, times in enumerate(report["accepted"]):
        sent[body] += times
    return report


async def check_log(q: Penstock, queue: str, batch: int, sent: Counter[int], checks: Checks) -> None:
    """Check that each event is in the log as often as its request was accepted."""
    stored: Counter[int] = Counter()
    reader = q.queue(queue).group("check").batch(20_000).partitions(PARTITIONS).auto_ack()
    while events := await reader.pop():
        stored.update(event.data["n"] for event in events)
    expected = {body * batch + i: times for body, times in sent.items() for i in range(batch) if times}
    wrong = sum(stored[n] != expected.get(n, 0) for n in stored.keys() | expected.keys())
    checks.expect(
        f"batches of {batch}: the log has the accepted events",
        wrong == 0,
        f"{wrong} of {len(expected):,} events are not stored as often as they were accepted",
    )
