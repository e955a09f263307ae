"""Files: every line once and whole, whatever happens to the process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.core.errors import Conflict
from penstock.log.log import Log
from penstock.sinks import File, Parquet, Sinks
from penstock.sinks.conformance import made_events
from tests.log.logs import eventually, push

WRITER = """
import asyncio, sys
from penstock.sinks import File, Sinks
async def main(url, queue, path):
    async with Sinks(url) as sinks:
        sinks.add(queue, File(path, rotate_bytes=20_000), batch=7, lease_seconds=0.5)
        await sinks.run()
asyncio.run(main(*sys.argv[1:]))
"""


def lines(path: Path) -> list[dict[str, object]]:
    """What is in the file and those it was before."""
    files = [*sorted(path.parent.glob(f"{path.stem}-*{path.suffix}")), path]
    return [json.loads(line) for file in files if file.exists() for line in file.read_bytes().split(b"\n")[:-1]]


def start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command)


async def test_a_writer_that_is_killed_again_and_again_leaves_every_line_once(
    log: Log, queue: str, sinks_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "out.jsonl"
    keys, count = ("a", "b", "c"), 700
    for key in keys:
        await push(log, [{"key": key, "n": n, "text": "x" * 50} for n in range(count)], queue=queue, key=key)

    def size() -> int:
        return sum(file.stat().st_size for file in tmp_path.glob("out*.jsonl"))

    kills = 0
    while kills < 2:
        writer = start([sys.executable, "-c", WRITER, sinks_url, queue, str(path)])
        before = size()

        async def grown(before: int = before) -> object:
            return size() > before + 20_000

        await eventually(grown)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        kills += 1
        # Half a line, as a process leaves it that is killed while it writes.
        with path.open("ab") as file:
            file.write(b'{"key": "a", "n": ')
    await Sinks(log=log).add(queue, File(path, rotate_bytes=20_000)).run(idle_seconds=1.0)

    found = lines(path)
    assert {key: [line["n"] for line in found if line["key"] == key] for key in keys} == {
        key: list(range(count)) for key in keys
    }


def test_a_torn_line_of_somebody_else_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"n": 0}\n{"n": 1')
    asyncio.run(_write(File(path), 5))
    assert [line["n"] for line in lines(path)] == [0, 5]


def test_events_that_were_written_and_not_acknowledged_are_recognised(tmp_path: Path) -> None:
    async def run() -> None:
        path = tmp_path / "out.jsonl"
        sink = File(path)
        await sink.open()
        events = made_events([{"n": n} for n in range(6)])
        await sink.write(events[:2])
        await sink.acknowledged(events[:2])
        await sink.write(events[2:4])
        os.close(sink._file or 0)  # killed: nothing more is written
        sink._position.close()
        again = File(path)
        await again.open()
        await again.write(events[2:])
        await again.close()
        assert [line["n"] for line in lines(path)] == [0, 1, 2, 3, 4, 5]

    asyncio.run(run())


def test_a_replay_is_written_again(tmp_path: Path) -> None:
    async def run() -> None:
        sink = File(tmp_path / "out.jsonl")
        await sink.open()
        events = made_events([{"n": 0}, {"n": 1}])
        for _ in range(2):
            await sink.write(events)
            await sink.acknowledged(events)
        await sink.close()
        assert [line["n"] for line in lines(tmp_path / "out.jsonl")] == [0, 1, 0, 1]

    asyncio.run(run())


def test_two_processes_cannot_write_one_file(tmp_path: Path) -> None:
    async def run() -> None:
        first, second = File(tmp_path / "out.jsonl"), File(tmp_path / "out.jsonl")
        await first.open()
        with pytest.raises(Conflict, match="another process"):
            await second.open()
        await first.close()
        await second.open()
        await second.close()

    asyncio.run(run())


def test_a_disk_that_is_full_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    fail = True

    def half(file: int, data: memoryview, at: int) -> int:
        if fail and at == 0:
            return real(file, data[: len(data) // 2], at)
        if fail:
            raise OSError(28, "No space left on device")
        return real(file, data, at)

    async def run() -> None:
        nonlocal fail
        sink = File(tmp_path / "out.jsonl")
        await sink.open()
        monkeypatch.setattr(os, "pwrite", half)
        with pytest.raises(OSError, match="No space"):
            await sink.write(made_events([{"n": 0}, {"n": 1}]))
        fail = False
        await sink.write(made_events([{"n": 0}, {"n": 1}]))
        await sink.close()
        assert [line["n"] for line in lines(tmp_path / "out.jsonl")] == [0, 1]

    asyncio.run(run())


def test_files_are_rotated_by_age(tmp_path: Path) -> None:
    async def run() -> None:
        sink = File(tmp_path / "out.jsonl", rotate_seconds=1e-9)
        await sink.open()
        for n in range(3):
            await sink.write(made_events([{"n": n}], first=n))
        await sink.close()

    asyncio.run(run())
    assert len(list(tmp_path.glob("out*.jsonl"))) == 3
    assert [line["n"] for line in lines(tmp_path / "out.jsonl")] == [0, 1, 2]


def test_a_parquet_file_that_was_announced_is_finished_after_a_crash(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    async def run() -> None:
        sink = Parquet(tmp_path)
        await sink.open()
        events = made_events([{"n": 0, "mixed": 1}, {"n": 1, "mixed": "two"}])
        await sink.write(events)
        sink._position.close()
        # Killed before the file had its name; and half of another one lies there.
        (tmp_path / "part-00000001.parquet").rename(tmp_path / ".part-00000001.parquet")
        (tmp_path / ".part-00000002.parquet").write_bytes(b"PAR1")
        again = Parquet(tmp_path)
        await again.open()
        await again.write(events)
        await again.close()

    asyncio.run(run())
    (part,) = tmp_path.glob("*.parquet")
    assert pq.read_table(part).select(["n", "mixed"]).to_pylist() == [
        {"n": 0, "mixed": "1"},
        {"n": 1, "mixed": '"two"'},
    ]


async def _write(sink: File, n: int) -> None:
    await sink.open()
    await sink.write(made_events([{"n": n}]))
    await sink.close()
