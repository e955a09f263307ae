"""One batch size: a load generator against a server process. The log is compared with the responses."""

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
            "cpu_s_per_million": {who: round(spent / millions, 2) for who, spent in self.cpu.items()},
        }


@contextmanager
def http_server(database_url: str, workers: int) -> Iterator[tuple[str, psutil.Process]]:
    """``penstock serve`` with its defaults, without the request log."""
    command = [sys.executable, "-m", "penstock", "serve", "--port", "0", "--request-log", "none"]
    environment = {**os.environ, "PENSTOCK_DATABASE_URL": database_url}
    process = subprocess.Popen(
        [*command, "--workers", str(workers)], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        said = ""
        while "Listening on " not in said:
            said = process.stdout.readline() if process.stdout is not None else ""
            if not said:
                raise RuntimeError(f"the server ended with {process.wait()}")
        yield said.split("Listening on ")[1].strip(), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)


async def measure(batch: int, plan: Plan, running: Server, workers: int, checks: Checks) -> dict[str, Any]:
    """Measure a batch size, on a queue and a server process of its own."""
    cell = Cell(batch)
    queue = f"events_{batch}"
    sent: Counter[int] = Counter()
    async with Penstock(running.url) as q:
        await q.queue(queue).config(dedup_window_seconds=0, max_depth_events=None).create(partitions=PARTITIONS)
        with http_server(running.url, workers) as (url, process):
            await drive(url, queue, batch, plan.warm_up_seconds, sent)
            for _ in range(plan.rounds):
                before = cpu_seconds(process), running.cpu_seconds()
                said = await drive(url, queue, batch, plan.seconds, sent)
                events = sum(said["accepted"]) * batch
                cell.cpu["server"] += cpu_seconds(process) - before[0]
                cell.cpu["postgresql"] += running.cpu_seconds() - before[1]
                cell.cpu["generator"] += said["cpu"]
                cell.events += events
                cell.rates.append(events / said["seconds"])
                cell.latencies += said["latencies"]
                fine = not said["refused"] and not said["lost"]
                checks.expect(
                    f"batches of {batch}: every request is accepted", fine, f"{said['refused']}, {said['lost']}"
                )
        await check_log(q, queue, batch, sent, checks)
        await q.queue(queue).delete()
    return cell.summary()


async def drive(
    url: str,
    queue: str,
    batch: int,
    seconds: float,
    sent: Counter[int],
    per_second: float | None = None,
    begins: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Let the generator run; answers what it said, and counts in ``sent`` how often each body was accepted.

    ``begins`` is called when it has made what it sends.
    """
    address = urlsplit(url)
    told = [str(part) for part in (address.hostname, address.port, queue, batch, CONNECTIONS, seconds)]
    told += [] if per_second is None else [str(per_second)]
    # A file and no pipe: it says a megabyte at once, of which a part has once been lost on the way.
    with tempfile.TemporaryFile() as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.ingest.generator", *told),
            stdout=output,
            stderr=asyncio.subprocess.PIPE,
        )
        if process.stderr is not None and await process.stderr.readline() == b"begin\n":
            begins()
        _, said_wrong = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"the load generator ended with {process.returncode}: {said_wrong.decode()}")
        output.seek(0)
        said: dict[str, Any] = json.load(output)
    for body, times in enumerate(said["accepted"]):
        sent[body] += times
    return said


async def check_log(q: Penstock, queue: str, batch: int, sent: Counter[int], checks: Checks) -> None:
    """Each event is in the log as often as its request was accepted."""
    found: Counter[int] = Counter()
    reader = q.queue(queue).group("check").batch(20_000).partitions(PARTITIONS).auto_ack()
    while events := await reader.pop():
        found.update(event.data["n"] for event in events)
    wanted = {body * batch + i: times for body, times in sent.items() for i in range(batch) if times}
    wrong = sum(found[n] != wanted.get(n, 0) for n in found.keys() | wanted.keys())
    checks.expect(
        f"batches of {batch}: what is in the log is what was answered accepted",
        wrong == 0,
        f"{wrong} of {len(wanted):,} events are not there as often as they were accepted",
    )
