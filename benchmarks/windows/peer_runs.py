"""Runs of a peer: it is started once and measured several times. Every result is compared with the oracle."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

from benchmarks.drain.bench import Bench, DrainResult, copy_out
from benchmarks.drain.dataset import Dataset
from benchmarks.drain.oracle import Oracle
from benchmarks.peers.process import PeerProcess
from benchmarks.windows.plan import Peer, Size

TABLE = """CREATE TABLE public.{0} (
    key text, start_ms bigint, count bigint NOT NULL, total {1} NOT NULL, max {1} NOT NULL,
    PRIMARY KEY (key, start_ms))"""
_numbers = count(1)


@dataclass(slots=True)
class Datasets:
    """One dataset with its oracle per size."""

    directory: Path
    _by_size: dict[Size, tuple[Dataset, Oracle]] = field(default_factory=dict)

    async def get(self, size: Size) -> tuple[Dataset, Oracle]:
        if size not in self._by_size:
            dataset = Dataset(size.workload, self.directory / f"events-{size.events}", size.file_events)
            await asyncio.to_thread(dataset.extend, size.events)
            self._by_size[size] = dataset, await asyncio.to_thread(Oracle, dataset, bounded=True)
        return self._by_size[size]


@dataclass(slots=True)
class PeerRun:
    """A running peer and its results."""

    peer: Peer
    process: PeerProcess
    size: Size
    rounds: list[DrainResult] = field(default_factory=list)

    async def measure(self, bench: Bench, datasets: Datasets, *, warm_up: bool = False) -> None:
        """Run the query once, into a temporary table."""
        dataset, oracle = await datasets.get(self.size)
        table = f"windows_{next(_numbers)}"
        scratch = bench.directory / table
        scratch.mkdir()
        with psycopg.connect(bench.server.url, autocommit=True) as conn:
            conn.execute(TABLE.format(table, self.peer.number_type).encode())
            conn.execute("CHECKPOINT")
        before = self.process.cpu_seconds(), bench.server.cpu_seconds()
        files = [str(path) for path in dataset.files]
        response = await self.process.request(
            do="drain", files=files, url=bench.server.url, table=table, directory=str(scratch)
        )
        spent = self.process.cpu_seconds() - before[0], bench.server.cpu_seconds() - before[1]
        millions = dataset.events / 1e6
        result = DrainResult(dataset.events, response["seconds"], 1, spent[0] / millions, spent[1] / millions)
        await self._verify(bench, table, oracle)
        shutil.rmtree(scratch)
        if not warm_up:
            self.rounds.append(result)
            result.print_summary(self.peer.key)

    async def _verify(self, bench: Bench, table: str, oracle: Oracle) -> None:
        rows = bench.directory / "rows.csv"
        amounts = "round(total::numeric, 2), round(max::numeric, 2)"
        select = f"SELECT key, start_ms, count, {amounts}, true FROM {table}"  # noqa: S608
        await asyncio.to_thread(copy_out, bench.server.url, select, rows)
        problems = await asyncio.to_thread(oracle.problems, rows, without_max=not self.peer.with_max)
        bench.checks.expect_none(f"{self.peer.key}: the windows are DuckDB's, to the cent", problems)
        with psycopg.connect(bench.server.url, autocommit=True) as conn:
            conn.execute(f"DROP TABLE {table}".encode())


def summary(rounds: list[DrainResult], note: str, versions: dict[str, str]) -> dict[str, Any]:
    """Return the medians of the rounds."""
    rates = [drain.per_second for drain in rounds]
    return {
        "events": rounds[0].events,
        "events_per_s": round(median(rates)),
        "engine_cpu_s_per_million": round(median(drain.engine_cpu for drain in rounds), 2),
        "postgresql_cpu_s_per_million": round(median(drain.server_cpu for drain in rounds), 2),
        "rounds": [round(rate) for rate in rates],
        "versions": versions,
        "note": note,
    }
