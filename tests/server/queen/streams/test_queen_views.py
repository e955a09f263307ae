"""SQL written for Queen's tables runs on the views of ``penstock db compat``, over streams that clients compute."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from tests.cli.command_line import CommandLine
from tests.server.queen.streams.stream_query import SEPARATOR, StreamQuery, upsert, window

#: Queries of dashboards and alerts over gates, with the name of the query as a literal.
LOWEST_FIRST = """
SELECT s.key AS tenant_or_partition, (s.value->>'tokens')::float AS tokens_remaining,
       (s.value->>'allowedTotal')::int AS lifetime_allowed, (s.value->>'consumedTotal')::int AS lifetime_cost,
       s.updated_at
FROM queen_streams.state s
JOIN queen_streams.queries q ON q.id = s.query_id
WHERE q.name = {name}
ORDER BY tokens_remaining ASC
LIMIT 20
"""
EMPTY_BUCKETS = """
SELECT s.key, (s.value->>'tokens')::float AS tokens
FROM queen_streams.state s
JOIN queen_streams.queries q ON q.id = s.query_id
WHERE q.name = {name} AND (s.value->>'tokens')::float < 1
ORDER BY s.updated_at DESC
"""
#: What programs read about a query and its open windows.
QUERIES = (
    "SELECT id, name, source_queue, sink_queue, config_hash, created_at FROM queen_streams.queries WHERE name = {name}"
)
OPEN_WINDOWS = """
SELECT s.partition_id, s.key, s.value, s.updated_at
FROM queen_streams.state s JOIN queen_streams.queries q ON q.id = s.query_id WHERE q.name = {name}
ORDER BY s.key
"""


def select(url: str, statement: str, name: str) -> list[dict[str, Any]]:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        return connection.execute(sql.SQL(statement).format(name=sql.Literal(name))).fetchall()


@pytest.fixture
def views_url(queen_url: str) -> str:
    CommandLine(queen_url).ok("db", "compat")
    return queen_url


def test_buckets_of_a_clients_gate_are_read_as_on_queen(query: StreamQuery, views_url: str) -> None:
    messages = query.pop()
    partition = messages[0]["partitionId"]
    buckets = {
        partition: {"tokens": 0.5, "lastRefillAt": 1, "allowedTotal": 3, "consumedTotal": 7},
        "eu": {"tokens": 9, "lastRefillAt": 1, "allowedTotal": 1, "consumedTotal": 1},
    }
    assert query.cycle(partition, messages[2], state_ops=[upsert(*each) for each in buckets.items()])["success"]
    lowest = select(views_url, LOWEST_FIRST, f"{query.queue}-query")
    fields = ("tenant_or_partition", "tokens_remaining", "lifetime_allowed", "lifetime_cost")
    assert [tuple(row[field] for field in fields) for row in lowest] == [(partition, 0.5, 3, 7), ("eu", 9, 1, 1)]
    assert [row["key"] for row in select(views_url, EMPTY_BUCKETS, f"{query.queue}-query")] == [partition]


def test_query_and_open_windows_have_the_ids_of_the_protocol(query: StreamQuery, views_url: str) -> None:
    messages = query.pop()
    partition = messages[0]["partitionId"]
    key = f"tumb:60{SEPARATOR}w1{SEPARATOR}alice"
    ops = [upsert(key, window(120_000, 7)), upsert("__wm__", {"eventTimeMs": 5})]
    assert query.cycle(partition, messages[2], state_ops=ops)["success"]
    (registered,) = select(views_url, QUERIES, f"{query.queue}-query")
    assert str(registered["id"]) == query.id
    assert (registered["source_queue"], registered["sink_queue"], registered["config_hash"]) == (
        query.queue,
        f"{query.queue}-out",
        "h1",
    )
    rows = select(views_url, OPEN_WINDOWS, f"{query.queue}-query")
    assert [(str(row["partition_id"]), row["key"], row["value"]) for row in rows] == [
        (partition, "__wm__", {"eventTimeMs": 5}),
        (partition, key, window(120_000, 7)),
    ]
