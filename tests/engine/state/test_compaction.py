"""How many runs an operator's state has, and how often their rows are rewritten."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.engine.state.compaction import runs_to_merge


@pytest.mark.parametrize("size", [1, 300, 100_000])
def test_the_number_of_runs_and_the_rewritten_rows_grow_with_the_logarithm(size: int) -> None:
    counts: list[int] = []
    written = 0
    for cycle in range(1, 5000):
        merged = runs_to_merge(counts, size)
        counts[len(counts) - merged :] = [size + sum(counts[len(counts) - merged :])]
        written += counts[-1]
        assert len(counts) <= 4 + 3 * np.log(max(cycle * size / 256, 1)) / np.log(4)
    levels = np.log(5000) / np.log(4)
    # Runs below 256 rows are rewritten more often: together they are small.
    assert written <= 5000 * size * levels + 5000 * 256
