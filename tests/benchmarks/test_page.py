"""Rendering of the benchmark page from the stored results."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.all.runs import CURVES, RUNS, named
from benchmarks.page.command import render
from benchmarks.page.markdown import page
from benchmarks.page.results import DIRECTORY
from benchmarks.page.sections import sections

ROOT = Path(__file__).parents[2]
_BATCHES = ("1", "10", "100", "1000")


def rates(*values: float) -> dict[str, float]:
    return dict(zip(_BATCHES, values, strict=True))


LOG: dict[str, Any] = {
    "quick": False,
    "push": rates(4_000, 20_000, 120_000, 250_000),
    "pop_ack": rates(2_000, 18_000, 110_000, 260_000),
    "bytes_per_event": 36.0,
    "peers": {
        "pgmq": {"push": rates(5_000, 19_000, 90_000, 120_000), "pop_ack": rates(1, 2, 3, 4), "bytes_per_event": 200.0},
        "pgqueuer": {"unavailable": "it could not be installed: no such wheel | at all"},
    },
    "checks": {"one": True, "two": False},
    "failures": ["two: 3 events were read twice"],
    "ok": False,
    "environment": {"command": "python -m benchmarks log", "date": "2026-11-15T20:00:00+00:00", "cpus": 2},
}


def render_page(**results: dict[str, Any]) -> str:
    return page(results, sections(results, [run.name for run in RUNS]))


@pytest.mark.slow
def test_stored_page_matches_the_stored_results(tmp_path: Path) -> None:
    for path in DIRECTORY.glob("*.json"):
        shutil.copy(path, tmp_path)

    render(tmp_path)

    rendered = {path.name: path.read_text() for path in tmp_path.iterdir()}
    stored = {path.name: path.read_text() for path in DIRECTORY.iterdir()}
    changed = sorted(name for name in rendered.keys() | stored.keys() if rendered.get(name) != stored.get(name))
    assert changed == [], "run: python -m benchmarks page"


def test_page_without_results() -> None:
    assert "Nothing has been measured yet" in render_page()


def test_page_lists_figures_in_which_a_peer_is_better() -> None:
    text = render_page(log=LOG)

    assert "the peer is better in 1." in text
    assert "| push, 1 at a time | pgmq | 5,000 | 4,000 | events/s | 1.25 × |" in text


def test_unavailable_peer_is_listed_with_the_reason() -> None:
    assert r"- PgQueuer was not measured: it could not be installed: no such wheel \| at all" in render_page(log=LOG)


def test_failed_check_is_shown() -> None:
    text = render_page(log=LOG)

    assert "    - two: 3 events were read twice" in text
    assert "1 of 2 FAILED" in text


def test_quick_runs_are_marked() -> None:
    assert "Quick runs" in render_page(log={**LOG, "quick": True})
    assert "Quick runs" not in render_page(log=LOG)


def test_plots_are_deterministic_and_obsolete_plots_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text(json.dumps(LOG))
    (tmp_path / "gone.svg").write_text("the plot of a removed result")

    render(tmp_path)
    first = (tmp_path / "log.svg").read_bytes()
    render(tmp_path)

    assert (tmp_path / "log.svg").read_bytes() == first
    assert not (tmp_path / "gone.svg").exists()


def test_result_of_an_unknown_benchmark_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "lgo.json").write_text(json.dumps(LOG))

    with pytest.raises(SystemExit, match=r"lgo\.json: no benchmark of that name"):
        render(tmp_path)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_run_without_figures_is_shown_with_its_failure(run: Any, tmp_path: Path) -> None:
    (tmp_path / f"{run.name}.json").write_text(json.dumps({"ok": False, "failures": ["it runs: the server ended"]}))

    render(tmp_path)

    assert "it runs: the server ended" in (tmp_path / "index.md").read_text()
    assert list(tmp_path.glob("*.svg")) == []


def test_runs_are_selected_by_name() -> None:
    assert [run.name for run in named(["drain", "log"])] == ["log", "drain"]
    assert {run.name for run in named(["scaling"])} == {f"scaling-{curve}" for curve in CURVES}


def test_window_engines_are_compared() -> None:
    def engine(rate: int, cpu: float) -> dict[str, Any]:
        costs = {"engine_cpu_s_per_million": cpu, "postgresql_cpu_s_per_million": 1.0}
        return {"events": 2_000_000, "events_per_s": rate, **costs, "versions": {"it": "1.2"}, "note": "as it comes"}

    engines = {"penstock": engine(300_000, 5.0), "flink": engine(350_000, 6.0), "redis": {"unavailable": "no wheel"}}
    text = render_page(windows={"engines": engines, "ok": True})

    assert "| PyFlink SQL | it 1.2 | 2,000,000 | 350,000 | 6.00 | 1.00 |" in text
    assert "| windows | PyFlink SQL | 350,000 | 300,000 | events/s | 1.17 × |" in text
    assert "CPU s per million | 1." not in text
    assert "- Redis, four commands per event was not measured: no wheel" in text


def test_cpu_time_is_compared_like_throughput() -> None:
    joins = {"events_per_s": {"penstock": 20_000, "state_store": 10_000}}
    joins["cpu_s_per_million"] = {"penstock": 60, "state_store": 40}
    connector = {
        "write_events_per_s": {"penstock": 500_000, "penstock_text": 600_000, "json": 300_000, "parquet": 200_000},
        "cpu_s_per_million": {"write": {"penstock": 2.0, "penstock_text": 3.0, "json": 1.5, "parquet": 4.0}},
    }
    text = render_page(joins={**joins, "ok": True}, connector={**connector, "ok": True})

    assert "the peer is better in 2." in text
    assert "| join of two queues | Spark's join, default state store | 40 | 60 | CPU s per million | 1.50 × |" in text
    assert "| write in Spark | JSON files | 1.50 | 3.00 | CPU s per million | 2.00 × |" in text


def test_freshness_is_compared_in_both_settings() -> None:
    def case(p50: float) -> dict[str, float]:
        return {"p50_ms": p50, "p95_ms": 500.0, "p99_ms": 600.0, "cores": 0.5, "rate": 1000}

    cases = {"1000": case(200.0), "default": case(350.0), "plain_spark": case(300.0)}
    text = render_page(freshness={**cases, "ok": True})

    assert "Of 8 figures that can be compared with a peer, the peer is better in 1." in text
    assert "| freshness at 1,000 events/s, default setting, p50 | plain Spark | 300.0 | 350.0 | ms | 1.17 × |" in text


def test_page_compares_the_queries_of_nexmark_with_those_of_flink() -> None:
    def engine(rate: int) -> dict[str, Any]:
        return {"events_per_s": rate, "engine_cpu_s_per_million": 5.0, "postgresql_cpu_s_per_million": 1.0}

    query = {"title": "pass through", "note": "", "rows": 460_000, "exact": True, "ratio": 0.5}
    query |= {"penstock": engine(200_000), "flink": engine(400_000)}
    refused = {"title": "mean", "note": "", "rows": 1, "exact": True, "penstock": engine(1)}
    refused |= {"flink": {"unavailable": "its frame is bounded"}}

    text = render_page(nexmark={"queries": {"q0": query, "q6": refused}, "ok": True})

    assert "| q0 | pass through | 200,000 | 400,000 | 0.50 |" in text
    assert "q6: Flink cannot run it, because its frame is bounded." in text
    assert "| Nexmark q0 | PyFlink SQL | 400,000 | 200,000 |" in text


def test_page_mentions_different_commits() -> None:
    assert "runs have different dates and commits" in render_page(log=LOG)


def test_cost_of_browsers_is_shown_with_its_details() -> None:
    def side(rate: int, browsers: float) -> dict[str, Any]:
        cores = {"server": 0.8, "postgresql": 0.4, "console": 0.02, "browsers": browsers}
        return {"events_per_s": rate, "p50_ms": 90.0, "p99_ms": 150.0, "cores": cores}

    loaded = {"nobody": side(100_000, 0.0), "browsers_idle_priority": side(98_000, 0.1)}
    loaded |= {"ratio": {"browsers_idle_priority": 0.98}, "cpu_ratio": {"browsers_idle_priority": 1.01}}
    text = render_page(console={"full_speed": loaded, "cost_pct": 2.0, "ok": True})

    assert "| no browser | 100,000 | 90.00 | 150.0 | 0.80 | 0.40 | 0.02 | 0.00 | – | – |" in text
    assert "| five browsers, idle priority | 98,000 | 90.00 | 150.0 | 0.80 | 0.40 | 0.02 | 0.10 | 0.98 | 1.01 |" in text
    assert "| throughput lost to five browsers, % | 2.00 |" in text


@pytest.mark.slow
def test_quick_run_stores_a_result_and_renders_the_page(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "all", "--quick", "--only", "scaling-groups", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["ok"]
    result = json.loads((tmp_path / "scaling-groups.json").read_text())
    assert result["environment"]["command"] == "python -m benchmarks scaling --curve groups --quick"
    assert {"cpus", "memory_gib", "python", "packages", "commit", "date", "seconds"} <= result["environment"].keys()
    assert 0 <= result["cpu_share_of_others"] <= 1
    text = (tmp_path / "index.md").read_text()
    assert "## Scaling: groups" in text
    assert "(scaling-groups.svg)" in text
    assert (tmp_path / "scaling-groups.svg").exists()
