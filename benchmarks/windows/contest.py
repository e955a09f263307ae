"""A peer at its work: started once, measured again and again, each result held against the oracle's."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

from benchmarks.drain.bench import Bench, Measured, copy_out
from benchmarks.drain.oracle import Oracle
from benchmarks.drain.stock import Stock
from benchmarks.peers.process import PeerProcess
from benchmarks.windows.plan import Peer, Size

TABLE = """CREATE TABLE public.{0} (
    key text, start_ms bigint, count bigint NOT NULL, total {1} NOT NULL, max {1} NOT NULL,
    PRIMARY KEY (key, start_ms))"""
_numbers = count(1)


@dataclass(slots=True)
class Stocks:
    """Events on disk with their oracle, one of each size."""

    directory: Path
    _made: dict[Size, tuple[Stock, Oracle]] = field(default_factory=dict)

    async def get(self, size: Size) -> tuple[Stock, Oracle]:
        if size not in self._made:
            stock = Stock(size.work, self.directory / f"events-{size.events}", size.file_events)
            await asyncio.to_thread(stock.grow, size.events)
            self._made[size] = stock, await asyncio.to_thread(Oracle, stock, bounded=True)
        return self._made[size]


@dataclass(slots=True)
class Contestant:
    """A peer and its results."""

    peer: Peer
    process: PeerProcess
    size: Size
    rounds: list[Measured] = field(default_factory=list)

    async def measure(self, bench: Bench, stocks: Stocks, *, warm_up: bool = False) -> None:
        """Let it count once, into a table of its own that is gone afterwards."""
        stock, oracle = await stocks.get(self.size)
        table = f"windows_{next(_numbers)}"
        scratch = bench.directory / table
        scratch.mkdir()
        with psycopg.connect(bench.server.url, autocommit=True) as conn:
            conn.execute(TABLE.format(table, self.peer.numbers).encode())
            conn.execute("CHECKPOINT")
        before = self.process.cpu_seconds(), bench.server.cpu_seconds()
        files = [str(path) for path in stock.files]
        said = await self.process.order(
            do="drain", files=files, url=bench.server.url, table=table, directory=str(scratch)
        )
        spent = self.process.cpu_seconds() - before[0], bench.server.cpu_seconds() - before[1]
        millions = stock.events / 1e6
        measured = Measured(stock.events, said["seconds"], 1, spent[0] / millions, spent[1] / millions)
        await self._verify(bench, table, oracle)
        shutil.rmtree(scratch)
        if not warm_up:
            self.rounds.append(measured)
            measured.say(self.peer.key)

    async def _verify(self, bench: Bench, table: str, oracle: Oracle) -> None:
        rows = bench.directory / "rows.csv"
        amounts = "round(total::numeric, 2), round(max::numeric, 2)"
        select = f"SELECT key, start_ms, count, {amounts}, true FROM {table}"  # noqa: S608
        await asyncio.to_thread(copy_out, bench.server.url, select, rows)
        problems = await asyncio.to_thread(oracle.problems, rows, without_max=not self.peer.with_max)
        bench.checks.expect_none(f"{self.peer.key}: the windows are DuckDB's, to the cent", problems)
        with psycopg.connect(bench.server.url, autocommit=True) as conn:
            conn.execute(f"DROP TABLE {table}".encode())


def summary(rounds: list[Measured], note: str, versions: dict[str, str]) -> dict[str, Any]:
    """The medians of the rounds."""
    rates = [one.per_second for one in rounds]
    return {
        "events": rounds[0].events,
        "events_per_s": round(median(rates)),
        "engine_cpu_s_per_million": round(median(one.engine_cpu for one in rounds), 2),
        "postgresql_cpu_s_per_million": round(median(one.server_cpu for one in rounds), 2),
        "rounds": [round(rate) for rate in rates],
        "versions": versions,
        "note": note,
    }
