"""What a worker caches of the runs that it has read or written."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.engine.state.run_cache import RunCache, RunScope
from penstock.engine.state.runs import Run, RunKey, RunPiece


def cached_run(run_id: str, rows: int) -> Run:
    return Run(run_id, RunKey(0, 0), [RunPiece(np.arange(rows), pa.table({"v": np.arange(rows)}), run_id, 0)])


def test_the_cache_drops_the_least_recently_used_runs() -> None:
    scope, cache = RunScope("", 1, 1, 0), RunCache(max_bytes=100_000)
    runs = [cached_run(f"run {number}", 1000) for number in range(20)]
    for run in runs:
        cache.add(scope, run)
        cache.hashes([scope])
        assert cache.bytes <= 100_000
    assert cache.rows(runs[-1].pieces[0]) is not None
    assert cache.rows(runs[0].pieces[0]) is None


def test_the_cache_forgets_runs_that_are_no_longer_part_of_the_state() -> None:
    scope, other, cache = RunScope("", 1, 1, 0), RunScope("", 1, 1, 1), RunCache()
    old, new, kept = cached_run("old", 10), cached_run("new", 10), cached_run("kept", 10)
    cache.add(scope, old)
    cache.add(scope, new)
    cache.add(other, kept)
    cache.keep_only(scope, {"new"})
    assert set(cache.hashes([scope, other])) == {"new", "kept"}
    assert cache.rows(old.pieces[0]) is None
