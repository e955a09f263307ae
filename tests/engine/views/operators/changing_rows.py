"""Rows that appear, change and disappear at random, and results that are kept by applying changes."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.engine.state.operator_state import WEIGHT
from penstock.engine.state.runs import HASH

Row = dict[str, Any]


def stable_hash(values: Iterable[Any], *, is_weak: bool = False) -> int:
    """A hash of some values. A weak one has many collisions."""
    text = repr([_canonical(value) for value in values]).encode()
    if is_weak:
        return ((zlib.crc32(text) % 2) << 32) | (zlib.crc32(text, 7) % 2)
    value = (zlib.crc32(text) << 32) | zlib.crc32(text, 7)
    return value - 2**64 if value >= 2**63 else value


def _canonical(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


class ChangingRows:
    """Rows by id. Each cycle some appear, change and disappear."""

    def __init__(self, chance: random.Random, new_row: Callable[[], Row], *, is_append_only: bool = False) -> None:
        self._chance = chance
        self._new_row = new_row
        self.is_append_only = is_append_only
        self._next_id = 0
        self.rows: dict[int, Row] = {}

    def change(self, count: int) -> list[tuple[Row, int]]:
        """Change some rows. Returns the rows that disappear and appear, with their weights, in random order."""
        changes: list[tuple[Row, int]] = []
        changed: set[int] = set()
        deletes = self._chance.random() < 0.15
        for _ in range(count):
            action = "insert" if self.is_append_only else self._chance.choice(["insert", "update", "delete"])
            action = "delete" if deletes and not self.is_append_only else action
            ids = [each for each in self.rows if each not in changed]
            if action == "insert" or not ids:
                action = "insert"
                self._next_id += 1
                row_id = self._next_id
            else:
                row_id = self._chance.choice(ids)
                changes.append((self.rows.pop(row_id), -1))
            changed.add(row_id)
            if action != "delete":
                self.rows[row_id] = {"id": row_id, **self._new_row()}
                changes.append((self.rows[row_id], 1))
        self._chance.shuffle(changes)
        return changes


def to_table(
    changes: Sequence[tuple[Row, int]],
    schema: pa.Schema,
    hashes: Mapping[str, Sequence[str]],
    *,
    is_weak: bool = False,
) -> pa.Table:
    """The table of changes with hash columns, each with the names of the columns that it is computed from."""
    table = pa.Table.from_pylist([row for row, _ in changes], schema)
    for name, columns in hashes.items():
        values = [stable_hash([row[each] for each in columns], is_weak=is_weak) for row, _ in changes]
        table = table.append_column(name, pa.array(values, pa.int64()))
    if HASH not in hashes:
        table = table.append_column(HASH, pa.array([0] * len(changes), pa.int64()))
    return table.append_column(WEIGHT, pa.array([weight for _, weight in changes], pa.int8()))


class AppliedChanges:
    """The rows of a result, kept by applying the changes of each cycle."""

    def __init__(self, key: Sequence[str]) -> None:
        self._key = key
        self.rows: dict[tuple[Any, ...], Row] = {}

    def apply(self, changes: pa.Table) -> None:
        rows = changes.to_pylist()
        for weight in (-1, 1):
            seen = set()
            for row in rows:
                if row[WEIGHT] == weight:
                    values = {name: value for name, value in row.items() if name != WEIGHT}
                    key = tuple(_canonical(row[name]) for name in self._key)
                    assert key not in seen, f"{key} has two changes with weight {weight}"
                    seen.add(key)
                    if weight < 0:
                        before = self.rows.pop(key, None)
                        assert before is not None, f"{key} disappears, but was not there"
                        assert same(before, values), f"{values} disappears, but {before} was there"
                    else:
                        assert key not in self.rows, f"{key} appears twice"
                        self.rows[key] = values


def same(left: Any, right: Any, tolerance: float = 0.0) -> bool:
    """Whether values are equal, with NaN as equal to itself."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name], tolerance) for name in left)
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right or math.isclose(left, right, rel_tol=tolerance, abs_tol=tolerance)
    return bool(left == right)


def assert_same_rows(found: Iterable[Row], expected: Iterable[Row], tolerance: float = 0.0) -> None:
    """Compare rows in any order."""

    def text(row: Row) -> str:
        rounded = {n: round(v, 6) + 0.0 if isinstance(v, float) else v for n, v in sorted(row.items())}
        return repr(rounded)

    ours, theirs = sorted(found, key=text), sorted(expected, key=text)
    assert len(ours) == len(theirs), f"{len(ours)} rows, expected {len(theirs)}: {ours} != {theirs}"
    for mine, other in zip(ours, theirs, strict=True):
        assert same(mine, other, tolerance), f"{mine} != {other}"
