"""Peer engines run jobs from standard input, and their windows are compared with the oracle."""

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
from benchmarks.drain.dataset import Dataset
from benchmarks.drain.oracle import Oracle
from benchmarks.windows.peer_runs import TABLE
from benchmarks.windows.plan import FULL, PEERS, QUICK, SPAN_SECONDS, Size

ROOT = Path(__file__).parents[2]
SIZE = Size(2_000, 10)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    result = Dataset(SIZE.workload, tmp_path / "events", SIZE.file_events)
    result.extend(SIZE.events)
    return result


def run_peer(peer: str, *requests: dict[str, Any]) -> list[dict[str, Any]]:
    text = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.peers.{peer}_peer"], input=text, capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_rows_of_a_peer_match_the_oracle(dataset: Dataset, empty_database_url: str, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    with psycopg.connect(empty_database_url, autocommit=True) as conn:
        conn.execute(TABLE.format("counted", "numeric").encode())
    files = [str(path) for path in dataset.files]
    target = {"url": empty_database_url, "table": "counted", "directory": str(tmp_path / "scratch")}

    opened, drained = run_peer("duckdb", {"do": "open"}, {"do": "drain", "files": files, **target})

    assert opened["versions"].keys() == {"duckdb"}
    assert drained["seconds"] > 0
    rows, oracle = tmp_path / "rows.csv", Oracle(dataset, bounded=True)
    select = "SELECT key, start_ms, count, {}, max, true FROM counted"
    copy_out(empty_database_url, select.format("total"), rows)
    assert oracle.problems(rows) == []
    copy_out(empty_database_url, select.format("total + 0.01"), rows)
    assert len(oracle.problems(rows)) == 2


def test_maximum_is_ignored_for_peers_without_one(dataset: Dataset, tmp_path: Path) -> None:
    oracle, rows = Oracle(dataset, bounded=True), tmp_path / "rows.csv"
    counted: Counter[tuple[str, int]] = Counter()
    cents: Counter[tuple[str, int]] = Counter()
    for line in dataset.files[0].read_text().splitlines():
        event = json.loads(line, parse_float=Decimal)
        window = event["customer"], event["ts"] - event["ts"] % 5_000
        counted[window] += 1
        cents[window] += int(event["amount"] * 100)
    rows.write_text("".join(f"{k},{at},{n},{cents[k, at] / 100:.2f},0,true\n" for (k, at), n in counted.items()))

    assert oracle.problems(rows, without_max=True) == []
    assert oracle.problems(rows) != []


def test_failed_job_returns_the_error(empty_database_url: str, tmp_path: Path) -> None:
    target = {"url": empty_database_url, "table": "nowhere", "directory": str(tmp_path)}

    (response,) = run_peer("duckdb", {"do": "drain", "files": [str(tmp_path / "none.json")], **target})

    assert "none.json" in response["error"]


@pytest.mark.parametrize("plan", [FULL, QUICK], ids=["full", "quick"])
def test_smaller_workloads_have_as_many_events_per_window(plan: Any) -> None:
    for peer in PEERS:
        size = plan.size_for(peer)
        assert size.events / size.keys == plan.size.events / plan.size.keys
        assert size.workload.per_second * SPAN_SECONDS == size.events
        assert (ROOT / "benchmarks" / "peers" / f"{peer.name}.txt").exists()
