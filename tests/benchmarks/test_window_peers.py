"""Engines of other make take orders as lines of JSON, and what they count is held against the oracle."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from benchmarks.drain.bench import copy_out
from benchmarks.drain.oracle import Oracle
from benchmarks.drain.stock import Stock
from benchmarks.windows.contest import TABLE
from benchmarks.windows.plan import FULL, PEERS, QUICK, SPAN_SECONDS, Size

ROOT = Path(__file__).parents[2]
SIZE = Size(2_000, 10)


@pytest.fixture
def stock(tmp_path: Path) -> Stock:
    made = Stock(SIZE.work, tmp_path / "events", SIZE.file_events)
    made.grow(SIZE.events)
    return made


def ordered(peer: str, *orders: dict[str, Any]) -> list[dict[str, Any]]:
    text = "".join(json.dumps(order) + "\n" for order in orders)
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.peers.{peer}_peer"], input=text, capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_rows_of_a_peer_are_the_oracles(stock: Stock, empty_database_url: str, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    with psycopg.connect(empty_database_url, autocommit=True) as conn:
        conn.execute(TABLE.format("counted", "numeric").encode())
    files = [str(path) for path in stock.files]
    where = {"url": empty_database_url, "table": "counted", "directory": str(tmp_path / "scratch")}

    opened, drained = ordered("duckdb", {"do": "open"}, {"do": "drain", "files": files, **where})

    assert opened["versions"].keys() == {"duckdb"}
    assert drained["seconds"] > 0
    rows, oracle = tmp_path / "rows.csv", Oracle(stock, bounded=True)
    select = "SELECT key, start_ms, count, {}, max, true FROM counted"
    copy_out(empty_database_url, select.format("total"), rows)
    assert oracle.problems(rows) == []
    copy_out(empty_database_url, select.format("total + 0.01"), rows)
    assert len(oracle.problems(rows)) == 2


def test_a_maximum_that_a_peer_does_not_have_is_not_asked_for(stock: Stock, tmp_path: Path) -> None:
    oracle, rows = Oracle(stock, bounded=True), tmp_path / "rows.csv"
    counted: Counter[tuple[str, int]] = Counter()
    cents: Counter[tuple[str, int]] = Counter()
    for line in stock.files[0].read_text().splitlines():
        event = json.loads(line, parse_float=Decimal)
        window = event["customer"], event["ts"] - event["ts"] % 5_000
        counted[window] += 1
        cents[window] += int(event["amount"] * 100)
    rows.write_text("".join(f"{k},{at},{n},{cents[k, at] / 100:.2f},0,true\n" for (k, at), n in counted.items()))

    assert oracle.problems(rows, without_max=True) == []
    assert oracle.problems(rows) != []


def test_an_order_that_fails_is_answered_with_what_went_wrong(empty_database_url: str, tmp_path: Path) -> None:
    where = {"url": empty_database_url, "table": "nowhere", "directory": str(tmp_path)}

    (answer,) = ordered("duckdb", {"do": "drain", "files": [str(tmp_path / "none.json")], **where})

    assert "none.json" in answer["error"]


@pytest.mark.parametrize("plan", [FULL, QUICK], ids=["full", "quick"])
def test_who_gets_less_work_gets_it_in_the_same_shape(plan: Any) -> None:
    for peer in PEERS:
        size = plan.size_for(peer)
        assert size.events / size.keys == plan.size.events / plan.size.keys
        assert size.work.per_second * SPAN_SECONDS == size.events
        assert (ROOT / "benchmarks" / "peers" / f"{peer.name}.txt").exists()
