"""A database, queues and queries to test with, and the few sentences that most tests of the engine are made of."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any
from unittest import mock

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from penstock import SyncPenstock
from penstock.core.errors import LeaseLost
from penstock.core.settings import Settings
from penstock.engine.cycle.commit import Committer
from penstock.engine.query import Query
from penstock.engine.stream import Stream
from penstock.log.dead_letters.dead_letter import DeadLetter
from penstock.log.event import Event
from tests.engine import oracle
from tests.engine.oracle import OracleEvent, WindowKey

#: Long enough for a machine that others use too.
PATIENCE = 100.0
#: No clock closes a window while a test looks on.
NEVER_IDLE = 86_400.0
#: A whole hour, and long ago: 2023-11-14 22:00 UTC.
T0 = 1_699_999_200


class Bench:
    """One database, with what is done to it and what can be asked of it."""

    def __init__(self, url: str, penstock: SyncPenstock) -> None:
        self.url = url
        self.penstock = penstock
        self.settings = Settings(database_url=url)

    # Doing

    def queue(self, name: str = "orders", partitioning: str = "hash", partitions: int | None = 2) -> None:
        wanted: Any = partitioning
        self.penstock.queue(name).create(wanted, partitions if partitioning == "hash" else None)

    def push(self, events: Iterable[Any], queue: str = "orders") -> None:
        """Push events: mappings as the client takes them, or pairs of a key and data."""
        items = [e if isinstance(e, dict) else {"key": e[0], "data": e[1]} for e in events]
        if items:
            self.penstock.queue(queue).push(items)

    def run(self, stream: Any, query: str | None = None, **options: Any) -> Query:
        """Let the query read what is there, close every window and stop."""
        given = {"flush": True, **options}
        name = query or getattr(stream.view, "name", None) or "q"
        made: Query = stream.run(name, settings=self.settings, available_now=True, **given)
        return made

    @contextmanager
    def running(self, stream: Any, query: str = "q", **options: Any) -> Iterator[Query]:
        """The query at work, until the block ends."""
        started: Query = stream.start(query, settings=self.settings, interval_seconds=0.0, **options)
        try:
            yield started
        finally:
            started.stop()

    def redrive(self, queue: str = "orders") -> int:
        sent = self.penstock.queue(queue).dlq().redrive(all=True)
        assert not sent.problems
        return sent.replayed

    # Asking

    def ask(self, question: str, *params: Any) -> Any:
        with psycopg.connect(self.url, autocommit=True) as conn:
            row = conn.execute(question.encode(), params or None).fetchone()
        return None if row is None else row[0]

    def rows(self, query: str = "q", schema: str = "penstock_history") -> list[dict[str, Any]]:
        with psycopg.connect(self.url, autocommit=True, row_factory=dict_row) as conn:
            conn.execute("SET TimeZone = 'UTC'")
            view = sql.SQL("SELECT * FROM {}.{} ORDER BY window_end, window_start, key").format(
                sql.Identifier(schema), sql.Identifier(query)
            )
            return conn.execute(view).fetchall()

    def live(self, query: str = "q") -> list[dict[str, Any]]:
        return self.rows(query, "penstock_live")

    def by_window(self, query: str = "q") -> dict[WindowKey, dict[str, Any]]:
        """The closed windows, by key and span."""
        found = {}
        for row in self.rows(query):
            assert not row["is_open"], "a window stayed open"
            found[row["key"], oracle.micros(row["window_start"]), oracle.micros(row["window_end"])] = row
        return found

    def by_key(self, name: str, query: str = "q") -> dict[str | None, Any]:
        """One column of a result with one window for each key."""
        rows = self.rows(query)
        assert len({row["key"] for row in rows}) == len(rows), "a key has several windows"
        return {row["key"]: row[name] for row in rows}

    def emitted(self, queue: str = "totals") -> list[dict[str, Any]]:
        """What is in a sink queue, each partition in order, numbers as they are spelt."""
        return [decoded(event) for event in self.events(queue)]

    def events(self, queue: str) -> list[Event]:
        found = self.penstock.queue(queue).browse(limit=100_000)
        return sorted(found, key=lambda e: (e.partition_id, e.offset))

    def seen(self, queue: str = "orders") -> list[OracleEvent]:
        """The events of a queue where they came to stand; key and time as the queue has them."""
        return [
            OracleEvent(e.partition_id, e.offset, e.key, oracle.micros(e.appended_at), decoded(e))
            for e in self.events(queue)
        ]

    def letters(self, queue: str = "orders") -> list[DeadLetter]:
        """The dead letters of a queue, in the order of their offsets."""
        found = list(self.penstock.queue(queue).dlq().list(limit=100_000))
        return sorted(found, key=lambda letter: (letter.partition_id, letter.offset))

    def ledger(self, column: str, query: str = "q") -> int:
        """A column of the ledger, added up over the cycles that were committed."""
        question = (
            f"SELECT coalesce(sum(c.{column}), 0)::bigint FROM penstock.cycles c JOIN penstock.queries q "  # noqa: S608
            "ON q.id = c.query_id WHERE q.name = %s AND c.committed_at IS NOT NULL"
        )
        return int(self.ask(question, query))


@contextmanager
def bench(url: str) -> Iterator[Bench]:
    with SyncPenstock(url) as penstock:
        yield Bench(url, penstock)


def decoded(event: Event) -> Any:
    return json.loads(event.raw, parse_float=Decimal)


def stream(*queues: str, **options: Any) -> Stream:
    return Stream.from_(*(queues or ("orders",)), **options)


def counted(made: Any, **rules: Any) -> Any:
    """One window for everything: its events are counted and their amounts added up."""
    options: dict[str, Any] = {"event_time": "ts", "idle_flush_seconds": NEVER_IDLE, **rules}
    return made.window_tumbling(seconds=3600, **options).aggregate({"n": "count(*)", "total": "sum(amount)"})


@contextmanager
def drivers_lost(chance: random.Random, often: float) -> Iterator[list[str]]:
    """Now and then the driver is lost with a cycle that is computed, or with one that is committed unknown to it."""
    real, lost = Committer.commit, []

    async def commit(self: Committer, work: Any) -> Any:
        moment = chance.random()
        if moment < often / 2:
            lost.append("before")
            raise LeaseLost("lost before the commit")
        outcome = await real(self, work)
        if moment < often:
            lost.append("after")
            raise LeaseLost("lost after the commit")
        return outcome

    with mock.patch.object(Committer, "commit", commit):
        yield lost
