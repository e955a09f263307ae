"""Statements of views and the same questions for DuckDB."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from tempfile import NamedTemporaryFile
from typing import Any

import duckdb
import psycopg
from psycopg import sql

from penstock.engine.stream import Stream
from penstock.stream.statements.statement_parser import parse_application
from tests.engine.pipelines import Bench

#: The queues of the tests, with declared fields.
QUEUES = """
CREATE QUEUE orders (id bigint, customer string, amount decimal(18, 2), placed timestamp) WITH (partitions = 2);
CREATE QUEUE payments (id bigint, order_id bigint, paid decimal(18, 2)) WITH (partitions = 2);
"""
_TABLES = {
    "orders": "CREATE TABLE orders (id bigint, customer text, amount decimal(18, 2), placed timestamptz)",
    "payments": "CREATE TABLE payments (id bigint, order_id bigint, paid decimal(18, 2))",
}


def make_views(statements: str) -> dict[str, tuple[Stream, dict[str, Any]]]:
    """Return the streams and options of the views in a text, in order."""
    application = parse_application(Stream, QUEUES + statements)
    return {query.name: (query.stream, query.options) for query in application.queries_in_order()}  # type: ignore[misc]  # streams of the class Stream


def random_order(chance: random.Random, number: int) -> dict[str, Any]:
    return {
        "id": number,
        "customer": chance.choice(["ada", "bob", "cy", "", None]),
        "amount": chance.choice([None, 1, 2.5, 10, -3.25, 0.1]),
        "placed": f"2026-01-{chance.randint(1, 5):02}T{chance.randint(0, 23):02}:00:00Z",
    }


def random_payment(chance: random.Random, number: int) -> dict[str, Any]:
    order = None if chance.random() < 0.1 else chance.randint(0, 40)
    return {"id": number, "order_id": order, "paid": chance.choice([None, 1, 5, 7.25])}


def read_rows(url: str, view: str) -> Counter[tuple[Any, ...]]:
    """The rows of a view, without the time of their last change."""
    with psycopg.connect(url) as conn:
        conn.execute("SET TimeZone = 'UTC'")
        cursor = conn.execute(sql.SQL("SELECT * FROM penstock_live.{}").format(sql.Identifier(view)))
        names = [column.name for column in cursor.description or []]
        kept = [index for index, name in enumerate(names) if name != "updated_at"]
        return comparable([tuple(row[index] for index in kept) for row in cursor.fetchall()])


def expected_rows(bench: Bench, question: str) -> Counter[tuple[Any, ...]]:
    """What DuckDB answers over the events that are in the queues."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'; SET error_on_division_by_zero = false")
        for queue, table in _TABLES.items():
            database.execute(table)
            types = {name: kind for name, kind, *_ in database.execute(f"DESCRIBE {queue}").fetchall()}
            with NamedTemporaryFile() as file:
                file.write(b"".join(event.raw + b"\n" for event in bench.events(queue)))
                file.flush()
                rows = "read_json(?, format = 'newline_delimited', columns = ?)"
                database.execute(f"INSERT INTO {queue} FROM {rows}", [file.name, types])
        return comparable(database.execute(question).fetchall())


def comparable(rows: Iterable[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(_normalized(value) for value in row) for row in rows)


def _normalized(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float | Decimal):
        return f"{Decimal(str(value)):.9f}"
    return str(value)
