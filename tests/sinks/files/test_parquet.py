"""Parquet files: each event once, whatever happens to the process."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from penstock.core.errors import SinkBusy
from penstock.sinks import Parquet
from penstock.sinks.conformance import make_events
from tests.python_process import run_python
from tests.sinks.files.sink_files import read_numbers, write_event

MIXED = [{"n": 0, "mixed": 1}, {"n": 1, "mixed": "two"}]
#: Writes a file and exits without closing the sink, as a process that is killed.
EXITING = f"""
import asyncio, os, sys
from penstock.sinks import Parquet
from penstock.sinks.conformance import make_events
async def main():
    sink = Parquet(sys.argv[1])
    await sink.open()
    await sink.write(make_events({MIXED!r}))
    os._exit(0)
asyncio.run(main())
"""


def test_existing_parquet_files_are_not_overwritten(tmp_path: Path) -> None:
    asyncio.run(write_event(Parquet(tmp_path), 1))
    asyncio.run(write_event(Parquet(tmp_path), 2, first=1))
    (tmp_path / "part-of-something.parquet").write_bytes(b"theirs")
    (tmp_path / ".position").unlink()
    asyncio.run(write_event(Parquet(tmp_path), 3, first=2))

    (tmp_path / "part-of-something.parquet").unlink()
    assert read_numbers(tmp_path) == [1, 2, 3]
    assert sorted(part.name for part in tmp_path.glob("*.parquet"))[-1] == "part-00000003.parquet"


def test_empty_objects_are_written_as_json_text(tmp_path: Path) -> None:
    data = {"n": 1, "plain": {}, "within": {"a": {}, "b": 1}, "among": [{}, {}], "fine": {"a": [1]}}

    async def run() -> None:
        sink = Parquet(tmp_path)
        await sink.open()
        await sink.write(make_events([data, {"n": 2}]))
        await sink.close()

    asyncio.run(run())
    (part,) = tmp_path.glob("*.parquet")
    first, second = ({k: v for k, v in row.items() if k[0] != "_"} for row in pq.read_table(part).to_pylist())
    assert first == {"n": 1, "plain": "{}", "within": '{"a":{},"b":1}', "among": "[{},{}]", "fine": {"a": [1]}}
    assert second == {"n": 2, "plain": None, "within": None, "among": None, "fine": None}


def write_rows(directory: Path, rows: list[Any]) -> list[dict[str, Any]]:
    """Write events as one file, and return its rows without the columns of the sink."""

    async def write() -> None:
        sink = Parquet(directory)
        await sink.open()
        await sink.write(make_events(rows))
        await sink.close()

    directory.mkdir()
    asyncio.run(write())
    (part,) = directory.glob("*.parquet")
    return [{k: v for k, v in row.items() if k[0] != "_"} for row in pq.read_table(part).to_pylist()]


@pytest.mark.parametrize("seed", range(60))
def test_uniform_events_are_stored_as_they_are_beside_others(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    values = [1, 2**53 + 1, 2**63, 1.5, 1e300, "a", "2026-01-01T00:00:00Z", "é\n", "", True, False]
    row = {name: chance.choice(values) for name in chance.sample("abcd", chance.randint(1, 4))}
    rows = [row | {name: chance.choice([value, *values[:5]]) for name, value in row.items()} for _ in range(3)]
    uniform = write_rows(tmp_path / "uniform", rows)
    # An event with other fields is decoded in Python, and with it all others of its file.
    *beside, _ = write_rows(tmp_path / "beside", [*rows, {"others": [{}]}])
    assert uniform == [{name: value for name, value in each.items() if name != "others"} for each in beside]


@pytest.mark.parametrize("step", ["replace", "rename"])
def test_a_failed_parquet_file_is_completed_by_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def run() -> None:
        sink = Parquet(tmp_path)
        await sink.open()
        for first in (0, 2):
            events = make_events([{"n": first}, {"n": first + 1}], first=first)
            with monkeypatch.context() as full:
                full.setattr(Path, step, fail)
                with pytest.raises(SinkBusy, match="No space"):
                    await sink.write(events)
            await sink.write(events)
        await sink.close()

    asyncio.run(run())
    assert read_numbers(tmp_path) == [0, 1, 2, 3]


def test_an_announced_parquet_file_is_renamed_after_a_crash(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    run_python(EXITING, tmp_path)
    # It exited before the file had its name, and half of another file exists.
    (tmp_path / "part-00000001.parquet").rename(tmp_path / ".part-00000001.parquet")
    (tmp_path / ".part-00000002.parquet").write_bytes(b"PAR1")

    async def run() -> None:
        again = Parquet(tmp_path)
        await again.open()
        await again.write(make_events(MIXED))
        await again.close()

    asyncio.run(run())
    (part,) = tmp_path.glob("*.parquet")
    assert pq.read_table(part).select(["n", "mixed"]).to_pylist() == [
        {"n": 0, "mixed": "1"},
        {"n": 1, "mixed": '"two"'},
    ]
