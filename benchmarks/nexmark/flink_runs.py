"""Runs of PyFlink: a query over the files, into PostgreSQL, and the comparison of its rows."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psycopg
from psycopg import sql

from benchmarks.log.checks import Checks
from benchmarks.log.server import Server
from benchmarks.nexmark import queues
from benchmarks.nexmark.answers import Answers
from benchmarks.nexmark.dataset import Dataset
from benchmarks.nexmark.measurement import Measurement
from benchmarks.nexmark.plan import FLINK, FLINK_SETUP, Query, Result
from benchmarks.peers.process import PeerProcess
from penstock.db.statements import fill_placeholders

#: The columns that name the directories of the files of query 10.
_DIRECTORIES = ("dt", "hm")
_numbers = count(1)


@dataclass(slots=True)
class FlinkRuns:
    """Runs queries in the process of the peer and compares their rows."""

    server: Server
    process: PeerProcess
    dataset: Dataset
    answers: Answers
    checks: Checks
    directory: Path

    async def measure(self, query: Query) -> Measurement:
        """Run a query into an empty table, or into files, and compare its rows."""
        table = None if query.result is Result.FILES else f"flink_{query.name}_{next(_numbers)}"
        columns = self.answers.postgresql_columns(query.name)
        with psycopg.connect(self.server.url, autocommit=True) as conn:
            if table is not None:
                conn.execute(_create_table(table, columns, query.flink_key))
            conn.execute("CHECKPOINT")
        files = self.directory / f"flink-{next(_numbers)}"
        files.mkdir()
        before = self.process.cpu_seconds(), self.server.cpu_seconds()
        response = await self.process.request(
            do="run",
            setup=[fill_placeholders(FLINK[name], directory=self.dataset.directory) for name in FLINK_SETUP],
            select=FLINK[query.name],
            directory=str(files),
            columns=list(columns),
            url=self.server.url,
            table=table,
            key=list(query.flink_key),
            partitions=list(_DIRECTORIES) if table is None else [],
        )
        engine, server = self.process.cpu_seconds() - before[0], self.server.cpu_seconds() - before[1]
        await asyncio.to_thread(self._verify, query, table, list(columns), files)
        shutil.rmtree(files)
        events = sum(self.dataset.workload.count(name) for name in query.reads)
        return Measurement(events, response["seconds"], engine, server, job_seconds=response["job_seconds"])

    def _verify(self, query: Query, table: str | None, columns: list[str], files: Path) -> None:
        if table is None:
            problems = self.answers.partitioned_csv_problems(query.name, files, _DIRECTORIES)
        else:
            path = self.directory / "flink.rows"
            with psycopg.connect(self.server.url, autocommit=True) as conn:
                queues.copy_table(conn, sql.Identifier("public", table), columns, path)
                conn.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier("public", table)))
            problems = self.answers.csv_problems(query.name, path, query.flink_compared)
            path.unlink()
        self.checks.expect_none(f"{query.name}: the rows of Flink are DuckDB's", problems)


def _create_table(table: str, columns: dict[str, str], key: tuple[str, ...]) -> sql.Composed:
    definitions = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in columns.items()]
    if key:
        names = sql.SQL(", ").join(map(sql.Identifier, key))
        definitions.append(sql.SQL("PRIMARY KEY ({})").format(names))
    return sql.SQL("CREATE TABLE public.{} ({})").format(sql.Identifier(table), sql.SQL(", ").join(definitions))
