"""Parquet files as sources."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.log.log import Log
from penstock.sources import Parquet
from tests.log.logs import letters
from tests.sources.runs import data, numbers, run_source


async def test_values_that_json_does_not_have_are_converted(log: Log, queue: str, tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    moment, far = 1_700_000_000_123_456_789, pa.array([0, 0, 9_999_999_999_999], pa.timestamp("s"))
    held = pa.table(
        {
            "n": [1.5, float("nan"), 2.5],
            "raw": [b"\x00\xff", None, None],
            "at": pa.array([moment] * 3, pa.timestamp("ns", "UTC")),
            "within": pa.array([[{"at": moment}], [], None], pa.list_(pa.struct([("at", pa.timestamp("ns"))]))),
            "far": far,
        }
    )
    pq.write_table(held, path)

    made = await run_source(log, queue, Parquet(path))

    near = {"at": "2023-11-14T22:13:20.123456Z", "far": "1970-01-01T00:00:00"}
    assert await data(log, queue) == [
        {"n": 1.5, "raw": "AP8=", "within": [{"at": "2023-11-14T22:13:20.123456"}], **near},
        {"n": None, "raw": None, "within": [], **near},
    ]
    assert made.rejected == 1
    assert [each.data for each in await letters(log, queue)] == [{"file": "in.parquet", "row": 2}]


async def test_a_rewritten_parquet_file_is_read_again(log: Log, queue: str, tmp_path: Path) -> None:
    path = tmp_path / "export.parquet"
    for first in (0, 100):
        pq.write_table(pa.table({"n": list(range(first, first + 5))}), path)
        await run_source(log, queue, Parquet(path))
        await run_source(log, queue, Parquet(path))
    assert await numbers(log, queue) == [*range(5), *range(100, 105)]


async def test_parquet_files_of_a_directory_are_read_in_order(log: Log, queue: str, tmp_path: Path) -> None:
    def write(name: str, numbers: range) -> None:
        pq.write_table(pa.table({"n": list(numbers)}), tmp_path / name, row_group_size=4)

    write("a.parquet", range(10))
    write("b.parquet", range(10, 15))
    first = await run_source(log, queue, Parquet(tmp_path), batch=3)
    write("c.parquet", range(15, 20))
    second = await run_source(log, queue, Parquet(tmp_path))

    assert (first.pushed, second.pushed) == (15, 5)
    assert [each["n"] for each in await data(log, queue)] == list(range(20))
