"""Cycles of a view's plan through Spark, with its state in PostgreSQL, and the same rows in DuckDB."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.db.statements import Statements
from penstock.engine.state.operator_state import WEIGHT, StateConfig
from penstock.engine.views.compile.spark_relation import HiddenNames, SparkRelation
from penstock.engine.views.compile.view_compiler import PlanContext, ViewCompiler
from penstock.engine.views.operators.net_changes import SEQUENCE
from penstock.engine.worker.spark_task import CycleJob, set_cycle_job
from penstock.stream.views.view_plan import Operator
from tests.engine.views.compile.duckdb_sql import query
from tests.engine.views.operators.changing_rows import AppliedChanges, ChangingRows, Row

_sql = Statements("penstock.engine.state", "run_store.sql")

FIELDS = {"i": pa.int64(), "n": pa.int32(), "s": pa.string(), "d": pa.decimal128(10, 2)}
POSITION = {"__partition": pa.int64(), "__offset": pa.int64(), "__key": pa.string(), "__time": pa.int64()}
CHANGES = pa.schema([("id", pa.int64()), *FIELDS.items(), (SEQUENCE, pa.int64()), (WEIGHT, pa.int8())])
QUEUES = ("q1", "q2")


def random_fields(chance: random.Random) -> Row:
    return {
        "i": chance.choice([None, 0, 1, 2, 3, 2**62]),
        "n": chance.choice([None, 0, 1, 2, 3]),
        "s": chance.choice([None, "", "a", "b", "ab"]),
        "d": chance.choice([None, Decimal("1.00"), Decimal("2.50"), Decimal("-3.25")]),
    }


def create_query(database_url: str, name: str) -> int:
    """A row for the query whose state is stored."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        row = conn.execute(
            "INSERT INTO penstock.queries (name, description, fingerprint, history_seconds) "
            "VALUES (%s, '{}', '', 1) RETURNING id",
            [name],
        ).fetchone()
    assert row is not None
    return int(row[0])


class PlanRun:
    """Runs cycles of a plan and keeps its result."""

    def __init__(self, spark: SparkSession, database_url: str, root: Operator, *, ttl_us: int = 0) -> None:
        self._spark, self._url, self.root = spark, database_url, root
        self.state = StateConfig(database_url, create_query(database_url, uuid.uuid4().hex), ttl_us=ttl_us)
        #: The time of the cycles.
        self.now_us = 1
        self._result: AppliedChanges | None = None
        self._columns: tuple[str, ...] = ()

    def cycle(self, tables: Mapping[str, pa.Table], *, is_single: bool, is_expiry: bool = False) -> None:
        """Compute a cycle over new rows of the sources, commit it, and apply its changes."""
        changes, token = self.compute(tables, is_single=is_single, is_expiry=is_expiry)
        self.commit(token)
        assert self._result is not None
        self._result.apply(changes)

    def compute(
        self, tables: Mapping[str, pa.Table], *, is_single: bool, is_expiry: bool = False
    ) -> tuple[pa.Table, str]:
        """The changes of a cycle that is not committed, and the token of its job."""
        relation = self.compile(tables, is_single=is_single, is_expiry=is_expiry)
        if self._result is None:
            self._result, self._columns = AppliedChanges(relation.key), relation.columns
        token = uuid.uuid4().hex
        set_cycle_job(self._spark, CycleJob(1, 1, token, self.now_us))
        try:
            return relation.frame.toArrow(), token
        finally:
            set_cycle_job(self._spark, None)

    def compile(self, tables: Mapping[str, pa.Table], *, is_single: bool, is_expiry: bool = False) -> SparkRelation:
        frames = {name: self._spark.createDataFrame(table) for name, table in tables.items()}
        context = PlanContext(replace(self.state, is_expiry=is_expiry), 3, 0 if is_single else 2, HiddenNames())
        return ViewCompiler(context, frames, {"v": ("id",)}).compile(self.root)

    def commit(self, token: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as conn:
            conn.execute(_sql["apply_runs"], {"query": self.state.query_id, "token": token})

    def state_rows(self, operator: int) -> int:
        """The rows of an operator's state."""
        question = (
            "SELECT coalesce(sum(rows), 0)::bigint FROM penstock.state_runs "
            "WHERE query_id = %s AND operator = %s AND is_current"
        )
        with psycopg.connect(self._url, autocommit=True) as conn:
            (rows,) = conn.execute(question, [self.state.query_id, operator]).fetchone() or (0,)
        return int(rows)

    @property
    def rows(self) -> list[Row]:
        """The rows of the result, without hidden columns."""
        result = self._result.rows.values() if self._result is not None else ()
        return [{name: row[name] for name in self._columns} for row in result]


class RandomCycles:
    """Random rows for a plan of random operators, and DuckDB's answer over all of them."""

    def __init__(self, chance: random.Random, run: PlanRun) -> None:
        self._chance, self._run = chance, run
        self.events: dict[str, list[Row]] = {queue: [] for queue in QUEUES}
        self._offsets = dict.fromkeys(QUEUES, 0)
        self.view = ChangingRows(chance, lambda: random_fields(chance))
        self._sequence = 0

    def cycle(self, *, is_single: bool, fails: bool = False) -> None:
        """Run a cycle over new rows. One that fails is computed, but not committed, and then computed again."""
        tables = {queue: self._new_events(queue) for queue in QUEUES} | {"v": self._new_changes()}
        if fails:
            self._run.compute(tables, is_single=is_single)
        self._run.cycle(tables, is_single=is_single)

    def _new_events(self, queue: str) -> pa.Table:
        count = self._chance.choice([0, 1, 3, 12])
        new = [random_fields(self._chance) for _ in range(count)]
        table = to_events(new, self._offsets[queue], self._chance)
        self._offsets[queue] += count
        self.events[queue] += new
        return table

    def _new_changes(self) -> pa.Table:
        rows = []
        for _ in range(2):
            for row, weight in sorted(self.view.change(self._chance.choice([0, 1, 4])), key=lambda each: each[1]):
                self._sequence += 1
                rows.append(row | {WEIGHT: weight, SEQUENCE: self._sequence})
        return pa.Table.from_pylist(rows, CHANGES)

    def check(self) -> None:
        """Compare the result with DuckDB's answer."""
        with duckdb.connect() as conn:
            conn.execute("SET error_on_division_by_zero = false")
            fields = pa.schema(FIELDS.items())
            for queue, events in self.events.items():
                conn.register(queue, pa.Table.from_pylist(events, fields))
            conn.register("v", pa.Table.from_pylist(list(self.view.rows.values()), fields))
            expected = conn.execute(query(self._run.root)).fetchall()
        found = [tuple(row.values()) for row in self._run.rows]
        assert Counter(map(comparable, found)) == Counter(map(comparable, expected))


def to_events(
    rows: Sequence[Row], offset: int = 0, chance: random.Random | None = None, fields: pa.Schema | None = None
) -> pa.Table:
    """Events as the reader returns them, from an offset on."""
    events = [
        {
            "__partition": 0 if chance is None else chance.randrange(2),
            "__offset": offset + number,
            "__key": "k",
            "__time": 0,
            **row,
        }
        for number, row in enumerate(rows)
    ]
    return pa.Table.from_pylist(events, pa.schema([*POSITION.items(), *(fields or FIELDS.items())]))


def comparable(row: Any) -> tuple[Any, ...]:
    return tuple(_comparable(value) for value in row)


def _comparable(value: Any) -> Any:
    """Numbers of all types are compared, with nine digits."""
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    return float(f"{value:.9g}") if is_number else value
