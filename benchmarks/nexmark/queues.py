"""Loads the events into queues, and reads positions and results."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from benchmarks.drain.load import PUSH_EVENTS
from benchmarks.log.bench import all_accepted
from benchmarks.nexmark.answers import Positions
from benchmarks.nexmark.dataset import Dataset
from benchmarks.nexmark.events import KEYS
from penstock import Penstock
from penstock.stream.statements.application import Application

_POSITIONS = """
SELECT q.name, t.name::bigint, p.next_offset
FROM penstock.groups g
JOIN penstock.queues q ON q.id = g.queue_id
JOIN penstock.partitions t ON t.queue_id = q.id
CROSS JOIN LATERAL (
    SELECT next_offset FROM penstock.positions p
    WHERE p.group_id = g.id AND p.partition_id = t.id ORDER BY p.version DESC LIMIT 1
) p
WHERE g.name = %s
"""
_SEGMENTS = (
    "SELECT q.id, s.segment FROM penstock.queues q JOIN penstock.segments s ON s.queue_id = q.id WHERE q.name = %s"
)
_CHUNKS = """
SELECT t.name::bigint, c.end_offset - c.event_count, c.appended_at
FROM penstock.{} c JOIN penstock.partitions t ON t.id = c.partition_id
"""
_FETCH = 10_000


async def load(q: Penstock, application: Application, dataset: Dataset) -> dict[str, int]:
    """Create the queues and push all events. Return the number of partitions of each queue."""
    for name, queue in application.queues.items():
        handle = q.queue(name).config(dedup_window_seconds=0, max_depth_events=None)
        await handle.create("hash", queue.partitions)
        for path in dataset.files(name):
            lines = (await asyncio.to_thread(path.read_bytes)).splitlines(keepends=True)
            for first in range(0, len(lines), PUSH_EVENTS):
                batch = lines[first : first + PUSH_EVENTS]
                all_accepted(await handle.push_ndjson(b"".join(batch), KEYS[name]), len(batch))
    return {name: queue.partitions or 1 for name, queue in application.queues.items()}


async def create_side_input(url: str, dataset: Dataset) -> None:
    """Create the table that query 13 joins with."""
    async with await psycopg.AsyncConnection.connect(url) as conn:
        await conn.execute("CREATE TABLE public.side_input (key bigint PRIMARY KEY, value text NOT NULL)")
        async with conn.cursor().copy("COPY public.side_input FROM STDIN (FORMAT csv)") as copy:
            await copy.write(dataset.side_input.read_bytes())


def append_times(url: str, queue: str) -> list[tuple[int, int, Any]]:
    """Return the append time of each chunk of a queue: partition, first offset, time."""
    with psycopg.connect(url) as conn:
        times: list[tuple[int, int, Any]] = []
        for queue_id, segment in conn.execute(_SEGMENTS, (queue,)).fetchall():
            table = sql.Identifier(f"chunks_{queue_id}_{segment}")
            times += conn.execute(sql.SQL(_CHUNKS).format(table)).fetchall()
    return times


def positions(conn: psycopg.Connection[Any], query: str) -> Positions:
    """Return the positions of a query."""
    return {(queue, partition): offset for queue, partition, offset in conn.execute(_POSITIONS, (query,)).fetchall()}


def appended(conn: psycopg.Connection[Any], queue: str) -> int:
    """Return the number of events that were appended to a queue."""
    row = conn.execute("SELECT appended FROM penstock.depth WHERE queue = %s", (queue,)).fetchone()
    return int(row[0]) if row is not None else 0


def copy_view(conn: psycopg.Connection[Any], view: str, columns: list[str], path: Path) -> bool:
    """Write the rows of a view to a CSV file. Return False if the view does not exist yet."""
    table = sql.Identifier("penstock_live", view)
    row = conn.execute("SELECT to_regclass(%s)", (table.as_string(conn),)).fetchone()
    if row is None or row[0] is None:
        return False
    copy_table(conn, table, columns, path)
    return True


def copy_table(conn: psycopg.Connection[Any], table: sql.Identifier, columns: list[str], path: Path) -> None:
    """Write the columns of a table to a CSV file. Names are compared without regard to case."""
    described = conn.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(table)).description or []
    names = {column.name.lower(): column.name for column in described}
    selected = sql.SQL(", ").join(sql.Identifier(names.get(name.lower(), name)) for name in columns)
    statement = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT csv)").format(selected, table)
    with conn.cursor().copy(statement) as copy, path.open("wb") as file:
        for block in copy:
            file.write(block)


async def write_events(q: Penstock, queue: str, path: Path) -> None:
    """Write all events of a queue to an NDJSON file."""
    counts = {info.name: info.partition_count or 0 for info in await q.queues()}
    with path.open("wb") as file:
        for partition in range(counts[queue]):
            offset = 0
            while events := await q.queue(queue).fetch(str(partition), offset, _FETCH):
                file.write(b"".join(bytes(event.raw) + b"\n" for event in events))
                offset += len(events)
