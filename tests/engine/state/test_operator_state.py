"""The runs of an operator's state: what is found, what is dropped, and what is loaded."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.engine.state.compaction import Merge
from penstock.engine.state.operator_state import OperatorState
from penstock.engine.state.runs import HASH
from tests.engine.state.memory_store import MemoryRunStore
from tests.engine.views.operators.changing_rows import stable_hash


def rows_of(keys: Sequence[int], value: int, alive: int = 1) -> pa.Table:
    return pa.table(
        {
            HASH: pa.array([stable_hash([key]) for key in keys], pa.int64()),
            "key": pa.array(keys, pa.int64()),
            "value": pa.array([value] * len(keys), pa.int64()),
            "alive": pa.array([alive] * len(keys), pa.int64()),
        }
    )


LATEST = Merge(("key",), alive="alive")


def add(store: MemoryRunStore, rows: pa.Table, merge: Merge, shards: int = 1) -> None:
    OperatorState(store, range(shards), shards).add(0, rows, merge)
    store.commit()


def test_the_latest_row_of_a_key_is_found_and_deleted_rows_vanish() -> None:
    chance, store = random.Random(2), MemoryRunStore()
    expected: dict[int, int] = {}
    for cycle in range(200):
        keys = chance.sample(range(400), 20)
        is_deleted = chance.random() < 0.4
        add(store, rows_of(keys, cycle, 0 if is_deleted else 1), LATEST, shards=3)
        for key in keys:
            expected.pop(key, None) if is_deleted else expected.update({key: cycle})
    wanted = rows_of(range(400), 0).select([HASH, "key"]).sort_by(HASH)
    found, index = OperatorState(store, range(3), 3).find_latest(0, wanted, ("key",))
    assert found is not None
    rows = found.to_pylist()
    values = {
        key: rows[at] for key, at in zip(wanted.column("key").to_pylist(), index.tolist(), strict=True) if at >= 0
    }
    assert {key: row["value"] for key, row in values.items() if row["alive"] > 0} == expected
    # Without the merges there would be 4,000 rows.
    assert store.row_count < 1600


def test_a_state_of_which_all_rows_are_deleted_becomes_empty() -> None:
    store = MemoryRunStore()
    for cycle in range(20):
        add(store, rows_of(range(cycle * 50, cycle * 50 + 50), 1), LATEST)
    for cycle in range(20):
        add(store, rows_of(range(cycle * 50, cycle * 50 + 50), 1, alive=0), LATEST)
    for _ in range(4):
        add(store, rows_of(range(1000), 1, alive=0), LATEST)
    assert store.row_count == 0


def test_a_large_run_is_cut_into_pieces_of_which_only_matching_ones_are_loaded() -> None:
    store = MemoryRunStore()
    hashes = np.sort(np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 200_000))
    add(store, pa.table({HASH: hashes, "value": np.arange(200_000)}), Merge())
    state = OperatorState(store, [0], 1)
    found = state.find_all(0, hashes[[70_000]])
    assert found is not None
    assert found.column("value").to_pylist() == [70_000]
    assert store.loaded == [1]


def test_large_runs_are_merged_in_blocks_without_losing_a_row() -> None:
    store, chance = MemoryRunStore(), np.random.default_rng(1)
    expected: dict[int, int] = {}
    for cycle in range(4):
        keys = chance.choice(900_000, 500_000, replace=False)
        hashes = keys * 7_919_000_000_000 % (2**62)
        rows = pa.table({HASH: hashes, "key": keys, "value": np.full(len(keys), cycle)})
        add(store, rows, Merge(("key",)))
        expected |= dict.fromkeys(keys.tolist(), cycle)
    (run,) = store.load([0])
    store.load_pieces(run.pieces)
    hashes = np.concatenate([piece.hashes for piece in run.pieces])
    assert bool(np.all(hashes[1:] >= hashes[:-1]))
    stored = pa.concat_tables([piece.table() for piece in run.pieces])
    assert dict(zip(stored["key"].to_pylist(), stored["value"].to_pylist(), strict=True)) == expected
