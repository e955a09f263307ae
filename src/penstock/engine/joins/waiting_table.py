"""Moves the rows of a join from the table of versions up to 0.1 to runs, when the query starts for the first time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import numpy as np
import psycopg
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.core.errors import LeaseLost
from penstock.core.formatting import number
from penstock.db.statements import Statements
from penstock.db.sync_connection import connect
from penstock.engine.cycle_plan import CyclePlan
from penstock.engine.joins.join_state import JOIN_SHARDS, LEFT, RIGHT, ROW_ID, UNMATCHED, JoinState
from penstock.engine.joins.unmatched_rows import store_unmatched, unmatched_rows
from penstock.engine.kernels.arrays import combine, mask, values_of
from penstock.engine.state.operator_state import shards_of
from penstock.engine.state.run_store import RunWriter
from penstock.engine.state.runs import HASH

_sql = Statements("penstock.engine.joins", "waiting_table.sql")
_runs = Statements("penstock.engine.state", "run_store.sql")
_logger = logging.getLogger("penstock.engine")

_BATCH_ROWS = 50_000
_SCHEMA = pa.schema(
    [
        ("__side", pa.int32()),
        ("__k", pa.string()),
        ("__time", pa.int64()),
        ("__partition", pa.int64()),
        ("__offset", pa.int64()),
        ("__key", pa.string()),
        ("__line", pa.string()),
        ("__is_matched", pa.bool_()),
    ]
)


def move_waiting_rows(spark: SparkSession, state: JoinState, query: str, fence: int) -> None:
    """Move the rows to runs and drop the table, if there is one.

    Raises:
        LeaseLost: Another driver has taken over the query.
    """
    with connect(state.config.conninfo, "driver") as conn, conn.transaction():
        if not _fetch_value(conn, _statement("exists", state), {}):
            return
        locked = conn.execute(_sql["lock_query"], {"query": state.query, "fence": fence}).fetchone()
        if locked is None:
            raise LeaseLost(f"query {query!r} was taken over by another driver")
        moved = 0
        for rows in _read_batches(conn, state, locked[0]):
            # Spark computes the same hashes for the events.
            hashed = spark.createDataFrame(rows).select("*", F.xxhash64("__k").alias(HASH)).toArrow()
            _store(state, conn, combine(pa.table(hashed.columns, names=hashed.column_names)), moved)
            moved += rows.num_rows
        conn.execute(_statement("drop", state))
    _logger.info("query %r: moved %s waiting rows of its join to the new form of its state", query, number(moved))


def _read_batches(conn: psycopg.Connection[Any], state: JoinState, closed_us: int | None) -> Iterator[pa.Table]:
    params = {
        "closed": closed_us,
        "before": state.before_us,
        "after": state.after_us,
        "is_outer": state.is_outer,
    }
    with conn.cursor("waiting_rows") as cursor:
        cursor.execute(_statement("rows", state), params)
        while rows := cursor.fetchmany(_BATCH_ROWS):
            arrays = [
                pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), _SCHEMA, strict=True)
            ]
            yield pa.table(arrays, schema=_SCHEMA)


def _store(state: JoinState, conn: psycopg.Connection[Any], rows: pa.Table, first: int) -> None:
    """Store rows that are numbered from ``first`` on."""
    token, hashes = uuid4().hex, values_of(rows.column(HASH))
    ids = (first + np.arange(rows.num_rows)) * JOIN_SHARDS + shards_of(hashes, JOIN_SHARDS)
    rows = rows.append_column(ROW_ID, pa.array(ids))
    side, is_matched = values_of(rows.column("__side")), values_of(rows.column("__is_matched"))
    opened = state.open_on(conn, [LEFT, RIGHT, UNMATCHED], writer=RunWriter(token))
    for number_of_side in (LEFT, RIGHT):
        state.store(number_of_side, mask(rows, side == number_of_side), opened, None)
    if state.is_outer:
        alone = state.stored_form(mask(rows, (side == LEFT) & ~is_matched))
        columns = (values_of(alone.column(name)) for name in ("__time", ROW_ID, HASH))
        store_unmatched([unmatched_rows(*columns, is_open=True)], None, CyclePlan(0, True, [], []), opened)
    opened.flush()
    conn.execute(_runs["apply_runs"], {"query": state.query, "token": token})


def _statement(name: str, state: JoinState) -> str:
    return _sql[name].replace("{id}", str(int(state.query)))


def _fetch_value(conn: psycopg.Connection[Any], statement: str, params: dict[str, Any]) -> Any:
    row = conn.execute(statement, params).fetchone()
    return None if row is None else row[0]
