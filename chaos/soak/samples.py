"""Periodic samples: memory, CPU time, connections, sizes, freshness."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg

from chaos.system import System

#: Tables with a retention longer than a soak test. They grow until then.
BY_DESIGN = {
    "requests": "idempotency keys are kept for 24 hours",
    "history": "closed windows are kept for 30 days",
    "cycles": "the ledger keeps 10,000 cycles of each query",
}
_SIZES = """
SELECT CASE WHEN c.relname ~ '^chunks_' THEN 'chunks'
            WHEN c.relname ~ '^ids_' THEN 'ids'
            WHEN c.relname ~ '^history_[0-9]' THEN 'history'
            WHEN c.relname ~ '^state_[0-9]' THEN 'state'
            ELSE c.relname END AS name,
       sum(pg_table_size(c.oid))::bigint, sum(pg_indexes_size(c.oid))::bigint
FROM pg_class c WHERE c.relnamespace = 'penstock'::regnamespace AND c.relkind = 'r' GROUP BY 1
"""
_FRESHNESS = """
SELECT q.name, percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (
    ORDER BY extract(epoch FROM c.committed_at - c.oldest_at) * 1000)
FROM penstock.cycles c JOIN penstock.queries q ON q.id = c.query_id
WHERE c.committed_at > clock_timestamp() - make_interval(secs => %s) AND c.oldest_at IS NOT NULL GROUP BY 1
"""


@dataclass
class Curve:
    """A quantity over time."""

    name: str
    unit: str
    values: list[tuple[float, float]] = field(default_factory=list)


class Sampler:
    """Takes samples of a system as curves."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._began: float | None = None
        self.curves: dict[str, Curve] = {}
        self._cpu: dict[str, float] = {}
        self._last: tuple[float, float, int] | None = None

    def sample(self) -> None:
        """Take one sample of everything."""
        self._began = self._began or time.monotonic()
        now = time.monotonic() - self._began
        memory, cpu = self._processes()
        for name, used in memory.items():
            self._add(f"memory of {name}", "MB", now, used / 1e6)
        with psycopg.connect(self._system.postgres.url, connect_timeout=10) as conn:
            self._database(conn, now, sum(cpu.values()))

    def _processes(self) -> tuple[dict[str, int], dict[str, float]]:
        """Sample memory (PSS) and CPU time of all processes but the load generators."""
        memory, cpu = {}, {}
        families = {name: process.family() for name, process in self._system.processes.items()}
        families["PostgreSQL"] = self._system.postgres.family()
        for name, family in families.items():
            if name.startswith(("producer", "consumer", "receiver")):
                continue
            memory[name], cpu_used = 0, 0.0
            for process in family:
                with suppress(psutil.Error, OSError):
                    memory[name] += _own_memory(process.pid)
                    times = process.cpu_times()
                    cpu_used += times.user + times.system
            # The usage of ended children stays counted.
            self._cpu[name] = cpu[name] = max(cpu_used, self._cpu.get(name, 0.0))
        return memory, cpu

    def _database(self, conn: psycopg.Connection[Any], now: float, cpu: float) -> None:
        connections = conn.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        ).fetchone()
        self._add("connections", "", now, float(connections[0]) if connections else 0)
        for name, table, index in conn.execute(_SIZES).fetchall():
            self._add(f"size of {name}", "MB", now, table / 1e6)
            self._add(f"size of the indexes of {name}", "MB", now, index / 1e6)
        since = now - self._last[0] if self._last is not None else now
        for query, (half, most) in conn.execute(_FRESHNESS, (since,)).fetchall():
            self._add(f"age of events when {query} is committed, median", "ms", now, half)
            self._add(f"age of events when {query} is committed, 99 %", "ms", now, most)
        appended = conn.execute("SELECT sum(appended)::bigint FROM penstock.depth").fetchone()
        events = int(appended[0]) if appended else 0
        if self._last is not None and events > self._last[2]:
            self._add("processor time per event", "µs", now, (cpu - self._last[1]) / (events - self._last[2]) * 1e6)
            self._add("events", "per second", now, (events - self._last[2]) / since)
        self._last = (now, cpu, events)

    def _add(self, name: str, unit: str, at: float, value: float) -> None:
        self.curves.setdefault(name, Curve(name, unit)).values.append((at, float(value)))


def _own_memory(pid: int) -> int:
    """Return the proportional set size, which divides shared pages among processes."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
