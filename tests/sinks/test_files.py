"""Files: every line once and whole, whatever happens to the process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import Conflict, InvalidRequest, SinkBusy
from penstock.log.log import Log
from penstock.sinks import File, Parquet, Sinks
from penstock.sinks.conformance import made_events
from penstock.sinks.files.progress_file import sync_directory
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


def test_a_file_of_somebody_else_is_gone_on_with_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"n": 0}\n{"n": 1')
    with pytest.raises(InvalidRequest, match="its last line has no end"):
        asyncio.run(_write(File(path), 5))
    assert path.read_bytes() == b'{"n": 0}\n{"n": 1'
    with path.open("ab") as file:
        file.write(b"}\n")
    asyncio.run(_write(File(path), 5))
    assert [line["n"] for line in lines(path)] == [0, 1, 5]


def test_the_first_line_that_is_torn_is_its_own_and_is_cut_off(tmp_path: Path) -> None:
    async def run() -> None:
        path = tmp_path / "out.jsonl"
        dies = File(path)
        await dies.open()
        os.pwrite(dies._file or 0, b'{"n": ', 0)  # killed in the middle of it
        os.close(dies._file or 0)
        dies._position.close()
        await _write(File(path), 5)
        assert path.read_bytes() == b'{"n":5}\n'

    asyncio.run(run())


def test_a_file_that_is_not_the_one_it_was_is_not_cut_in_the_middle_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    asyncio.run(_write(File(path), 5))
    path.write_bytes(b'{"theirs": "a long line"}\n')
    with pytest.raises(InvalidRequest, match="is not as it was left"):
        asyncio.run(_write(File(path), 6))
    assert path.read_bytes() == b'{"theirs": "a long line"}\n'
    path.with_name("out.jsonl.position").unlink()
    asyncio.run(_write(File(path), 6))
    assert path.read_bytes() == b'{"theirs": "a long line"}\n{"n":6}\n'


@pytest.mark.parametrize("how", ["emptied", "moved away", "replaced"])
def test_others_may_rotate_a_file_while_it_is_written(tmp_path: Path, how: str) -> None:
    path, before = tmp_path / "out.jsonl", tmp_path / "before"

    async def run() -> None:
        sink = File(path)
        await sink.open()
        await sink.write(made_events([{"n": n} for n in range(3)]))
        if how == "emptied":  # as `copytruncate` does it
            before.write_bytes(path.read_bytes())
            os.truncate(path, 0)
        else:
            path.rename(before)
        if how == "replaced":
            path.write_bytes(b'{"n": "theirs, and longer than all before it"}\n')
        await sink.write(made_events([{"n": 3}], first=3))
        await sink.write(made_events([{"n": 4}], first=4))
        if how == "emptied":
            os.truncate(path, 0)
        await sink.close()

    asyncio.run(run())
    assert before.read_bytes() == b'{"n":0}\n{"n":1}\n{"n":2}\n'
    theirs = b'{"n": "theirs, and longer than all before it"}\n' if how == "replaced" else b""
    assert path.read_bytes() == (b"" if how == "emptied" else theirs + b'{"n":3}\n{"n":4}\n')
    asyncio.run(_write(File(path), 5, first=5))
    assert [line["n"] for line in lines(path)][-1] == 5
    assert b"\0" not in path.read_bytes()


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
        with pytest.raises(SinkBusy, match="No space"):
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


@pytest.mark.parametrize("step", ["the announcement", "the name", "the directory", "the new file"])
def test_a_rotation_that_fails_is_finished_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    failures: list[str] = []

    def fail(*_: object) -> None:
        if not failures:
            failures.append(step)
            raise OSError(5, "Input/output error")

    def failing(real: Callable[..., Any], when: Callable[..., bool] = lambda *_: True) -> Callable[..., Any]:
        def act(*given: Any) -> Any:
            if when(*given):
                fail()
            return real(*given)

        return act

    async def run() -> None:
        sink = File(tmp_path / "out.jsonl", rotate_bytes=10)
        await sink.open()
        await sink.write(made_events([{"n": 0}, {"n": 1}]))
        moving = iter([False, True])
        with monkeypatch.context() as broken:
            if step == "the announcement":
                broken.setattr(Path, "replace", failing(Path.replace))
            elif step == "the name":
                broken.setattr(Path, "rename", failing(Path.rename))
            elif step == "the directory":
                broken.setattr("penstock.sinks.files.file.sync_directory", failing(sync_directory))
            else:
                broken.setattr(Path, "replace", failing(Path.replace, lambda *_: next(moving, False)))
            with pytest.raises(SinkBusy, match="Input/output error"):
                await sink.write(made_events([{"n": 2}], first=2))
            await sink.write(made_events([{"n": 2}], first=2))
        await sink.write(made_events([{"n": 3}], first=3))
        await sink.close()

    asyncio.run(run())
    assert failures == [step]
    assert [line["n"] for line in lines(tmp_path / "out.jsonl")] == [0, 1, 2, 3]
    assert len(list(tmp_path.glob("out-*.jsonl"))) == 1


def test_who_closes_a_file_waits_for_a_thread_that_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing, go_on = threading.Event(), threading.Event()
    real = os.pwrite

    def slow(*given: Any) -> int:
        writing.set()
        go_on.wait(20)
        return real(*given)

    async def run() -> None:
        path = tmp_path / "out.jsonl"
        sink = File(path)
        await sink.open()
        with monkeypatch.context() as slowly:
            slowly.setattr(os, "pwrite", slow)
            write = asyncio.create_task(sink.write(made_events([{"n": 0}])))
            await asyncio.to_thread(writing.wait, 20)
            write.cancel()
            await asyncio.wait([write])
            close = asyncio.create_task(sink.close())
            done, _ = await asyncio.wait([close], timeout=0.05)
            assert not done
            go_on.set()
            await close
        # It is there, was not acknowledged, and comes again.
        again = File(path)
        await again.open()
        await again.write(made_events([{"n": 0}, {"n": 1}]))
        await again.close()
        assert [line["n"] for line in lines(path)] == [0, 1]

    asyncio.run(run())


@pytest.mark.parametrize("kind", [File, Parquet])
def test_events_of_another_database_are_not_taken_for_those_that_are_there(
    tmp_path: Path, kind: type[File] | type[Parquet]
) -> None:
    path = tmp_path / "out"
    there = made_events([{"n": 0}, {"n": 1}])
    later = made_events([{"n": 10}, {"n": 11}], appended_at=there[0].appended_at + timedelta(microseconds=1))

    async def run() -> None:
        for events in (there, there, later, later):  # never acknowledged
            sink = kind(path)
            await sink.open()
            await sink.write(events)
            await sink.close()

    asyncio.run(run())
    assert written(path) == [0, 1, 10, 11]


def test_a_position_of_before_is_understood(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"n":0}\n{"n":1}\n{"n":')
    path.with_name("out.jsonl.position").write_text('{"length":16,"unconfirmed":{"1":[[0,2]]},"moving_to":null}')

    async def run() -> None:
        sink = File(path)
        await sink.open()
        await sink.write(made_events([{"n": n} for n in range(4)]))
        await sink.close()

    asyncio.run(run())
    assert [line["n"] for line in lines(path)] == [0, 1, 2, 3]


def test_parquet_files_of_before_are_not_written_over(tmp_path: Path) -> None:
    asyncio.run(_write(Parquet(tmp_path), 1))
    asyncio.run(_write(Parquet(tmp_path), 2, first=1))
    (tmp_path / "part-of-something.parquet").write_bytes(b"theirs")
    (tmp_path / ".position").unlink()
    asyncio.run(_write(Parquet(tmp_path), 3, first=2))

    (tmp_path / "part-of-something.parquet").unlink()
    assert written(tmp_path) == [1, 2, 3]
    assert sorted(part.name for part in tmp_path.glob("*.parquet"))[-1] == "part-00000003.parquet"


def test_parquet_takes_objects_without_fields_wherever_they_are(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    data = {"n": 1, "plain": {}, "within": {"a": {}, "b": 1}, "among": [{}, {}], "fine": {"a": [1]}}

    async def run() -> None:
        sink = Parquet(tmp_path)
        await sink.open()
        await sink.write(made_events([data, {"n": 2}]))
        await sink.close()

    asyncio.run(run())
    (part,) = tmp_path.glob("*.parquet")
    first, second = ({k: v for k, v in row.items() if k[0] != "_"} for row in pq.read_table(part).to_pylist())
    assert first == {"n": 1, "plain": "{}", "within": '{"a":{},"b":1}', "among": "[{},{}]", "fine": {"a": [1]}}
    assert second == {"n": 2, "plain": None, "within": None, "among": None, "fine": None}


@pytest.mark.parametrize("step", ["replace", "rename"])
def test_a_parquet_file_that_a_disk_did_not_take_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def run() -> None:
        sink = Parquet(tmp_path)
        await sink.open()
        for first in (0, 2):
            events = made_events([{"n": first}, {"n": first + 1}], first=first)
            with monkeypatch.context() as full:
                full.setattr(Path, step, fail)
                with pytest.raises(SinkBusy, match="No space"):
                    await sink.write(events)
            await sink.write(events)
        await sink.close()

    asyncio.run(run())
    assert written(tmp_path) == [0, 1, 2, 3]


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


async def _write(sink: File | Parquet, n: int, first: int = 0) -> None:
    await sink.open()
    await sink.write(made_events([{"n": n}], first=first))
    await sink.close()


def written(path: Path) -> list[object]:
    """The numbers in a file, or in a directory of Parquet files."""
    import pyarrow.parquet as pq

    if path.is_file():
        return [line["n"] for line in lines(path)]
    parts = sorted(path.glob("*.parquet"))
    return [row["n"] for part in parts for row in pq.read_table(part).to_pylist()]
