"""Runs the streams of a model over a filled queue, and measures the cost of idle key partitions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil
import psycopg

from benchmarks.engines.cpu import cpu_seconds
from benchmarks.gate.evaluation import GateResult, evaluate, read
from benchmarks.gate.plan import CAPACITY, RATE, RAW_KEYS, Model, Size
from benchmarks.log.server import Server
from penstock import Query, Stream, SyncPenstock, token_bucket_gate
from penstock.core.settings import Settings

_QUEUES = ("requests", "between", "approved")
_LONGEST_SECONDS = 900.0
_PUSH = 20_000


@dataclass(frozen=True, slots=True)
class Bench:
    """Measures runs, each in its own database."""

    server: Server

    def measure(self, model: Model, size: Size, name: str) -> GateResult:
        with self._database(name) as (url, client):
            events = [
                {"key": f"tenant-{tenant}", "data": model.event(i)}
                for i in range(size.each)
                for tenant in range(size.tenants)
            ]
            _push(client, "requests", events)
            with _running(model.streams(), url) as queries:
                _await_events(queries[-1], len(events))
            return evaluate(model, size, read(client, "approved"))

    def raw(self, events: int, name: str) -> tuple[float, float]:
        """Return events per second through a gate that never limits, and the total CPU seconds per million events.

        The time is from the plan of the first cycle to the last release.
        """
        with self._database(name) as (url, client):
            requests = [{"key": f"tenant-{i % RAW_KEYS}", "data": {"seq": i, "op": "set"}} for i in range(events)]
            _push(client, "requests", requests)
            gate = token_bucket_gate(capacity=1_000_000_000, refill_per_sec=1_000_000_000)
            before = self._cpu()
            with _running([Stream.from_("requests").gate(gate).to("approved")], url) as (query,):
                _await_events(query, events)
            cpu = (self._cpu() - before) / events * 1e6
            with psycopg.connect(url) as conn:
                row = conn.execute(
                    "SELECT extract(epoch FROM max(committed_at) - min(planned_at))::float8 FROM penstock.cycles"
                ).fetchone()
        return events / row[0] if row is not None else 0.0, cpu

    def idle_partitions_cpu(self, idle: int, name: str) -> float:
        """Return the total CPU seconds to drain 100 key partitions next to a number of idle ones."""
        with self._database(name) as (url, client):
            gate = token_bucket_gate(capacity=CAPACITY, refill_per_sec=RATE)
            with _running([Stream.from_("requests").gate(gate).to("approved")], url) as (query,):
                _push(client, "requests", [{"key": f"idle-{i}", "data": {"seq": 0}} for i in range(idle)])
                _push(client, "requests", [{"key": f"tenant-{i}", "data": {"seq": 0}} for i in range(100)])
                _await_events(query, idle + 100)
                _await_idle(url, idle)
                before = self._cpu()
                events = [{"key": f"tenant-{i}", "data": {"seq": n}} for n in range(1, 1001) for i in range(100)]
                _push(client, "requests", events)
                _await_events(query, idle + 100 + len(events))
                return self._cpu() - before

    def _cpu(self) -> float:
        return cpu_seconds(psutil.Process()) + self.server.cpu_seconds()

    @contextmanager
    def _database(self, name: str) -> Iterator[tuple[str, SyncPenstock]]:
        url = self.server.create_database(name)
        with SyncPenstock(url) as client:
            for queue in _QUEUES:
                client.queue(queue).config(max_depth_events=10_000_000).create("key")
            yield url, client


def _push(client: SyncPenstock, queue: str, events: list[dict[str, Any]]) -> None:
    for start in range(0, len(events), _PUSH):
        client.queue(queue).push(events[start : start + _PUSH])


@contextmanager
def _running(streams: list[Stream], url: str) -> Iterator[list[Query]]:
    settings = Settings(database_url=url)
    queries = [stream.start(f"gate-{number}", settings=settings) for number, stream in enumerate(streams, 1)]
    try:
        yield queries
    finally:
        for query in queries:
            query.stop()


def _await_events(query: Query, events: int) -> None:
    deadline = time.monotonic() + _LONGEST_SECONDS
    while query.status.events_out < events:
        if query.wait(0.05) or time.monotonic() > deadline:
            raise RuntimeError(f"{query.status.events_out:,} of {events:,} events came through: {query.status.error}")


def _await_idle(url: str, idle: int) -> None:
    """Wait until the drained key partitions are parked."""
    deadline = time.monotonic() + 120
    with psycopg.connect(url, autocommit=True) as conn:
        while time.monotonic() < deadline:
            row = conn.execute(
                "SELECT count(*) FROM penstock.cursors c JOIN penstock.groups g ON g.id = c.group_id "
                "WHERE g.query_id IS NOT NULL AND c.state = 1"
            ).fetchone()
            if row is not None and row[0] >= idle:
                return
            time.sleep(0.25)
    raise RuntimeError("the drained key partitions were not parked")
