"""Views over views whose drivers, workers and database are killed: the statements, and the checks of their rows."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

from penstock import SyncPenstock
from tests.engine.crash.orders import eventually
from tests.engine.pipelines import Bench
from tests.engine.views.statements import QUEUES, expected_rows, random_order, random_payment, read_rows
from tests.engine.views.test_views import replay_changes

_PAID = (
    "SELECT o.customer, count(*) AS orders, sum(o.amount) AS total, max(t.paid) AS most FROM orders o "
    "LEFT JOIN (SELECT order_id, sum(paid) AS paid FROM payments GROUP BY order_id) t ON t.order_id = o.id "
    "GROUP BY o.customer"
)
_BEST = "SELECT customer, orders FROM {} ORDER BY orders DESC, customer NULLS FIRST LIMIT 2"
#: Another definition of the view ``paid``.
PAID_LARGE = _PAID.replace("GROUP BY o.customer", "WHERE o.amount > 1 GROUP BY o.customer").replace(
    "max(t.paid) AS most", "min(t.paid) AS least, max(t.paid) AS most"
)


def statements(paid: str = _PAID) -> str:
    return (
        f"{QUEUES}"
        f"CREATE MATERIALIZED VIEW paid WITH (changes = 'paid.changes') AS {paid};"
        f"CREATE MATERIALIZED VIEW best WITH (changes = 'best.changes') AS {_BEST.format('paid')};"
    )


def questions(paid: str = _PAID) -> dict[str, str]:
    return {"paid": paid, "best": _BEST.format(f"({paid})")}


class Shop:
    """Pushes random orders and payments."""

    def __init__(self, bench: Bench, file: Path, seed: int) -> None:
        self._bench, self._chance, self._count = bench, random.Random(seed), 0
        self.file = file
        file.write_text(statements())
        for queue in ("orders", "payments"):
            bench.queue(queue)

    def push(self, count: int) -> None:
        numbers = range(self._count, self._count + count)
        self._count += count
        for queue, make in (("orders", random_order), ("payments", random_payment)):
            self._bench.push([(None, make(self._chance, number)) for number in numbers], queue)

    def check(self, paid: str = _PAID) -> None:
        """Wait until the rows are those of DuckDB, and compare them with the changes that were written."""
        expected = {view: expected_rows(self._bench, question) for view, question in questions(paid).items()}
        with suppress(TimeoutError):
            await_rows(self._bench.url, expected)
        for view, rows in expected.items():
            assert read_rows(self._bench.url, view) == rows
            assert replay_changes(self._bench, f"{view}.changes") == rows

    def wait_for_commit(self) -> None:
        """Wait until each view has committed another cycle."""
        before = self._commits()
        eventually(lambda: all(now > then for now, then in zip(self._commits(), before, strict=True)), what="a commit")

    def queries(self) -> list[str]:
        return list(self._bench.ask("SELECT array_agg(name ORDER BY name) FROM penstock.queries"))

    def _commits(self) -> list[int]:
        return [self._bench.ledger("cycle", view) for view in questions()]


def await_rows(url: str, expected: Mapping[str, Counter[tuple[Any, ...]]], seconds: float = 200) -> None:
    """Wait until views have some rows. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while True:
        # A view has no rows before it has been prepared.
        with suppress(psycopg.errors.UndefinedTable):
            if all(read_rows(url, view) == rows for view, rows in expected.items()):
                return
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.1)


@contextmanager
def shop(url: str, directory: Path, seed: int) -> Iterator[Shop]:
    with SyncPenstock(url) as penstock:
        yield Shop(Bench(url, penstock), directory / "shop.sql", seed)
