from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.sinks import File, Parquet
from penstock.sinks.conformance import make_events
from tests.sinks.files.sink_files import read_lines, read_numbers


@pytest.mark.parametrize("kind", [File, Parquet])
def test_events_of_another_database_at_the_same_offsets_are_written(
    tmp_path: Path, kind: type[File] | type[Parquet]
) -> None:
    path = tmp_path / "out"
    there = make_events([{"n": 0}, {"n": 1}])
    later = make_events([{"n": 10}, {"n": 11}], appended_at=there[0].appended_at + timedelta(microseconds=1))

    async def run() -> None:
        for events in (there, there, later, later):  # never acknowledged
            sink = kind(path)
            await sink.open()
            await sink.write(events)
            await sink.close()

    asyncio.run(run())
    assert read_numbers(path) == [0, 1, 10, 11]


def test_progress_file_of_an_early_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"n":0}\n{"n":1}\n{"n":')
    path.with_name("out.jsonl.position").write_text('{"length":16,"unconfirmed":{"1":[[0,2]]},"moving_to":null}')

    async def run() -> None:
        sink = File(path)
        await sink.open()
        await sink.write(make_events([{"n": n} for n in range(4)]))
        await sink.close()

    asyncio.run(run())
    assert [line["n"] for line in read_lines(path)] == [0, 1, 2, 3]
