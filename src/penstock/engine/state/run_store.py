"""Where the runs of a query are stored: in PostgreSQL, and cached by the Spark workers."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import psycopg
import pyarrow as pa

from penstock.db.statements import Statements
from penstock.engine.state.run_cache import RunCache, RunScope
from penstock.engine.state.runs import Run, RunKey, RunPiece, RunTimes, decode_hashes, decode_rows, encode_piece
from penstock.engine.worker.spark_task import translate_database_errors, worker_connection

_sql = Statements("penstock.engine.state", "run_store.sql")

#: The cache of this worker process.
_worker_cache = RunCache()
#: One task may compute an operator twice, in two processes or in one.
_run_numbers = itertools.count()


class StateChanged(RuntimeError):
    """The state of a query changed while a task read it: another driver has taken over the query."""


class RunStore(Protocol):
    """The runs of one operator."""

    def load(self, shards: Sequence[int]) -> list[Run]:
        """The runs of some shards, the oldest first. The rows of their pieces may not be loaded."""

    def load_pieces(self, pieces: Sequence[RunPiece]) -> None:
        """Load the rows of pieces."""

    def stage(
        self, key: RunKey, pieces: list[RunPiece], replaced: Sequence[Run], times: RunTimes | None = None
    ) -> None:
        """Store a run that replaces others when the cycle is committed."""

    def flush(self) -> None:
        """Write the staged runs."""


class EmptyStore:
    """The store of a preview, which has no state."""

    def load(self, shards: Sequence[int]) -> list[Run]:
        return []

    def load_pieces(self, pieces: Sequence[RunPiece]) -> None:
        pass

    def stage(
        self, key: RunKey, pieces: list[RunPiece], replaced: Sequence[Run], times: RunTimes | None = None
    ) -> None:
        pass

    def flush(self) -> None:
        pass


class _StoredPiece(NamedTuple):
    sequence: int
    part: int
    shard: int
    run_id: str
    rows: int
    min_us: int | None
    median_us: int | None
    max_us: int | None
    #: The hashes, and the rows too if they are few; None if the worker has the hashes.
    data: bytes | None

    @property
    def times(self) -> RunTimes | None:
        if self.min_us is None or self.median_us is None or self.max_us is None:
            return None
        return RunTimes(self.min_us, self.median_us, self.max_us)


@dataclass(frozen=True)
class RunWriter:
    """Who writes runs, which become current together with all others of the token."""

    token: str
    attempt: int = 0


@dataclass
class PostgresRunStore:
    conninfo: str
    query_id: int
    operator: int
    #: None if the runs are only read.
    writer: RunWriter | None
    cache: RunCache = field(default_factory=lambda: _worker_cache)
    #: The connection; None for that of the worker process.
    connection: psycopg.Connection[Any] | None = None
    #: The parts that are read; None for all.
    parts: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        self._staged: list[dict[str, Any]] = []
        self._shards: list[int] = []

    def load(self, shards: Sequence[int]) -> list[Run]:
        self._shards = list(shards)
        cached = self.cache.hashes(self._scope(shard) for shard in shards)
        parts = None if self.parts is None else list(self.parts)
        params = self._params(shards=self._shards, cached=list(cached), parts=parts)
        runs: dict[str, Run] = {}
        for row in [_StoredPiece(*row) for row in self._fetch("load_runs", params)]:
            run = runs.setdefault(row.run_id, Run(row.run_id, RunKey(row.part, row.shard), [], row.times))
            number = len(run.pieces)
            hashes = cached[row.run_id][number] if row.data is None else decode_hashes(row.data, row.rows)
            has_rows = row.data is not None and len(row.data) > hashes.nbytes
            rows = decode_rows(memoryview(row.data)[hashes.nbytes :]) if row.data is not None and has_rows else None
            run.pieces.append(RunPiece(hashes, rows, row.run_id, number, row.sequence))
        for shard in shards:
            current = [run for run in runs.values() if run.key.shard == shard]
            self.cache.keep_only(self._scope(shard), {run.id for run in current})
            for run in current:
                if run.id not in cached:
                    self.cache.add(self._scope(shard), run)
        return list(runs.values())

    def load_pieces(self, pieces: Sequence[RunPiece]) -> None:
        wanted = {}
        for piece in pieces:
            if piece.rows is None:
                piece.rows = self.cache.rows(piece)
            if piece.rows is None:
                wanted[piece.sequence] = piece
        if not wanted:
            return
        found = self._fetch("load_pieces", self._params(shards=self._shards, sequences=list(wanted)))
        if len(found) < len(wanted):
            raise StateChanged(f"runs of query {self.query_id} are gone: another driver took over the query")
        for sequence, data in found:
            wanted[sequence].rows = decode_rows(data)
            self.cache.add_rows(wanted[sequence])

    def stage(
        self, key: RunKey, pieces: list[RunPiece], replaced: Sequence[Run], times: RunTimes | None = None
    ) -> None:
        if not pieces and not replaced:
            return
        if self.writer is None:
            raise ValueError("the runs were loaded to be read only")
        token, attempt = self.writer.token, self.writer.attempt
        run_id = f"{token}-{self.operator}-{key.part}-{key.shard}-{attempt}-{os.getpid()}-{next(_run_numbers)}"
        # A run without rows is not stored. It only tells which runs are deleted.
        for number, piece in enumerate(pieces or [RunPiece(np.empty(0, np.int64), pa.table({}))]):
            self._staged.append(
                self._params(
                    shard=key.shard,
                    part=key.part,
                    run_id=run_id,
                    token=token,
                    attempt=attempt,
                    replaces=[run.id for run in replaced] if number == 0 else [],
                    rows=len(piece.hashes),
                    min_us=None if times is None else times.min_us,
                    median_us=None if times is None else times.median_us,
                    max_us=None if times is None else times.max_us,
                    data=encode_piece(piece),
                )
            )
        self.cache.add(self._scope(key.shard), Run(run_id, key, pieces, times))

    def flush(self) -> None:
        if not self._staged:
            return
        with translate_database_errors():
            connection = self._connect()
            with connection.transaction(), connection.cursor() as cursor:
                cursor.executemany(_sql["stage_run"], self._staged)
        self._staged.clear()

    def _fetch(self, name: str, params: dict[str, Any]) -> list[Any]:
        with translate_database_errors():
            return self._connect().execute(_sql[name], params, binary=True).fetchall()

    def _connect(self) -> psycopg.Connection[Any]:
        return worker_connection(self.conninfo) if self.connection is None else self.connection

    def _params(self, **params: Any) -> dict[str, Any]:
        return {"query": self.query_id, "operator": self.operator, **params}

    def _scope(self, shard: int) -> RunScope:
        return RunScope(self.conninfo, self.query_id, self.operator, shard)
