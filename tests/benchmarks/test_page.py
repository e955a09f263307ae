"""The page of benchmarks is what its results render to, whichever of them are there."""

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


def rendered(**results: dict[str, Any]) -> str:
    return page(results, sections(results, [run.name for run in RUNS]))


@pytest.mark.slow
def test_the_page_is_what_the_results_render_to(tmp_path: Path) -> None:
    for path in DIRECTORY.glob("*.json"):
        shutil.copy(path, tmp_path)

    render(tmp_path)

    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    stored = {path.name: path.read_text() for path in DIRECTORY.iterdir()}
    changed = sorted(name for name in made.keys() | stored.keys() if made.get(name) != stored.get(name))
    assert changed == [], "make it again: python -m benchmarks page"


def test_nothing_measured_is_a_page_too() -> None:
    assert "Nothing has been measured yet" in rendered()


def test_the_page_says_where_a_peer_is_better_from_the_figures_alone() -> None:
    text = rendered(log=LOG)

    assert "the peer's is better in 1." in text
    assert "| push, 1 at a time | pgmq | 5,000 | 4,000 | events/s | 1.25 × |" in text


def test_a_peer_that_could_not_be_measured_is_named_with_the_reason() -> None:
    assert r"- PgQueuer was not measured: it could not be installed: no such wheel \| at all" in rendered(log=LOG)


def test_a_check_that_failed_stands_beside_the_figures() -> None:
    text = rendered(log=LOG)

    assert "    - two: 3 events were read twice" in text
    assert "1 of 2 FAILED" in text


def test_quick_figures_are_called_so() -> None:
    assert "Quick runs" in rendered(log={**LOG, "quick": True})
    assert "Quick runs" not in rendered(log=LOG)


def test_plots_are_the_same_each_time(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text(json.dumps(LOG))
    (tmp_path / "gone.svg").write_text("of a result that is no longer there")

    render(tmp_path)
    first = (tmp_path / "log.svg").read_bytes()
    render(tmp_path)

    assert (tmp_path / "log.svg").read_bytes() == first
    assert not (tmp_path / "gone.svg").exists()


def test_a_result_of_no_benchmark_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lgo.json").write_text(json.dumps(LOG))

    with pytest.raises(SystemExit, match=r"lgo\.json: no benchmark of that name"):
        render(tmp_path)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_run_that_measured_nothing_is_shown_with_its_failure(run: Any, tmp_path: Path) -> None:
    (tmp_path / f"{run.name}.json").write_text(json.dumps({"ok": False, "failures": ["it runs: the server ended"]}))

    render(tmp_path)

    assert "it runs: the server ended" in (tmp_path / "index.md").read_text()
    assert list(tmp_path.glob("*.svg")) == []


def test_runs_are_chosen_by_name() -> None:
    assert [run.name for run in named(["drain", "log"])] == ["log", "drain"]
    assert {run.name for run in named(["scaling"])} == {f"scaling-{curve}" for curve in CURVES}


def test_engines_that_count_windows_stand_beside_each_other() -> None:
    def engine(rate: int, cpu: float) -> dict[str, Any]:
        costs = {"engine_cpu_s_per_million": cpu, "postgresql_cpu_s_per_million": 1.0}
        return {"events": 2_000_000, "events_per_s": rate, **costs, "versions": {"it": "1.2"}, "note": "as it comes"}

    engines = {"penstock": engine(300_000, 5.0), "flink": engine(350_000, 6.0), "redis": {"unavailable": "no wheel"}}
    text = rendered(windows={"engines": engines, "ok": True})

    assert "| PyFlink SQL | it 1.2 | 2,000,000 | 350,000 | 6.00 | 1.00 |" in text
    assert "| windows | PyFlink SQL | 350,000 | 300,000 | events/s | 1.17 × |" in text
    assert "CPU s per million | 1." not in text
    assert "- Redis, four commands an event was not measured: no wheel" in text


def test_what_a_peer_saves_in_cpu_is_listed_as_its_speed_is() -> None:
    joins = {"events_per_s": {"penstock": 20_000, "state_store": 10_000}}
    joins["cpu_s_per_million"] = {"penstock": 60, "state_store": 40}
    connector = {
        "write_events_per_s": {"penstock": 500_000, "penstock_text": 600_000, "json": 300_000, "parquet": 200_000},
        "cpu_s_per_million": {"write": {"penstock": 2.0, "penstock_text": 3.0, "json": 1.5, "parquet": 4.0}},
    }
    text = rendered(joins={**joins, "ok": True}, connector={**connector, "ok": True})

    assert "the peer's is better in 2." in text
    assert (
        "| join of two queues | Spark's join, state in memory and files | 40 | 60 | CPU s per million | 1.50 × |"
        in text
    )
    assert "| write in Spark | files of JSON | 1.50 | 3.00 | CPU s per million | 2.00 × |" in text


def test_freshness_is_compared_in_both_settings() -> None:
    def case(p50: float) -> dict[str, float]:
        return {"p50_ms": p50, "p95_ms": 500.0, "p99_ms": 600.0, "cores": 0.5, "rate": 1000}

    cases = {"1000": case(200.0), "default": case(350.0), "plain_spark": case(300.0)}
    text = rendered(freshness={**cases, "ok": True})

    assert "Of 8 figures that a peer has too, the peer's is better in 1." in text
    assert "| freshness at 1,000 events/s, by default, p50 | plain Spark | 300.0 | 350.0 | ms | 1.17 × |" in text


def test_the_page_says_which_query_of_nexmark_carries_the_cold_start() -> None:
    query = {"events_read": 460_000, "events_per_s": 23_000, "seconds": 20.0, "rows": 460_000, "exact": True}

    assert "The first query has the start of the JVM in it" in rendered(nexmark={"queries": {"q0": query}, "ok": True})


def test_the_page_says_that_runs_are_of_several_commits() -> None:
    assert "Runs are of the days and commits that stand here, not all of one" in rendered(log=LOG)


def test_what_browsers_cost_is_shown_with_what_it_is_a_part_of() -> None:
    def side(rate: int, browsers: float) -> dict[str, Any]:
        cores = {"server": 0.8, "postgresql": 0.4, "console": 0.02, "browsers": browsers}
        return {"events_per_s": rate, "p50_ms": 90.0, "p99_ms": 150.0, "cores": cores}

    loaded = {"nobody": side(100_000, 0.0), "browsers_idle_priority": side(98_000, 0.1)}
    loaded |= {"ratio": {"browsers_idle_priority": 0.98}, "cpu_ratio": {"browsers_idle_priority": 1.01}}
    text = rendered(console={"full_speed": loaded, "cost_pct": 2.0, "ok": True})

    assert "| nobody looks | 100,000 | 90.00 | 150.0 | 0.80 | 0.40 | 0.02 | 0.00 | – | – |" in text
    assert "| five browsers, idle priority | 98,000 | 90.00 | 150.0 | 0.80 | 0.40 | 0.02 | 0.10 | 0.98 | 1.01 |" in text
    assert "| ingestion lost to five browsers, % | 2.00 |" in text


@pytest.mark.slow
def test_a_quick_run_leaves_a_result_that_the_page_shows(tmp_path: Path) -> None:
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
