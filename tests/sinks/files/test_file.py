"""Files: every line once and complete, also after a crash."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import Conflict, InvalidRequest, SinkBusy
from penstock.log.log import Log
from penstock.sinks import File, Sinks
from penstock.sinks.conformance import make_events
from penstock.sinks.files.progress_file import sync_directory
from tests.conditions import eventually_async
from tests.log.logs import push
from tests.python_process import run_python
from tests.sinks.files.sink_files import read_lines, write_event

WRITER = """
import asyncio, sys
from penstock.sinks import File, Sinks
async def main(url, queue, path):
    async with Sinks(url) as sinks:
        sinks.add(queue, File(path, rotate_bytes=20_000), batch=7, lease_seconds=0.5)
        await sinks.run()
asyncio.run(main(*sys.argv[1:]))
"""


#: Opens a sink, writes and exits without closing it, as a process that is killed.
EXITING = """
import asyncio, os, sys
from penstock.sinks import File
from penstock.sinks.conformance import make_events
async def main():
    sink, e = File(sys.argv[1]), make_events([{"n": n} for n in range(6)])
    await sink.open()
    %s
    os._exit(0)
asyncio.run(main())
"""


def run_and_exit(path: Path, statements: str) -> None:
    run_python(EXITING % statements, path)


def start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command)


@pytest.mark.slow
async def test_killed_writer_leaves_every_line_once(log: Log, queue: str, sinks_url: str, tmp_path: Path) -> None:
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

        await eventually_async(grown)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        kills += 1
        # A killed process can leave an incomplete line.
        with path.open("ab") as file:
            file.write(b'{"key": "a", "n": ')
    await Sinks(log=log).add(queue, File(path, rotate_bytes=20_000)).run(idle_seconds=1.0)

    found = read_lines(path)
    assert {key: [line["n"] for line in found if line["key"] == key] for key in keys} == {
        key: list(range(count)) for key in keys
    }


def test_an_existing_file_is_appended_to_and_an_incomplete_line_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"n": 0}\n{"n": 1')
    with pytest.raises(InvalidRequest, match="its last line has no line break"):
        asyncio.run(write_event(File(path), 5))
    assert path.read_bytes() == b'{"n": 0}\n{"n": 1'
    with path.open("ab") as file:
        file.write(b"}\n")
    asyncio.run(write_event(File(path), 5))
    assert [line["n"] for line in read_lines(path)] == [0, 1, 5]


def test_an_incomplete_first_line_of_the_sink_is_truncated(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    run_and_exit(path, "")
    path.write_bytes(b'{"n": ')  # the part of a line that was written
    asyncio.run(write_event(File(path), 5))
    assert path.read_bytes() == b'{"n":5}\n'


def test_a_file_changed_by_another_program_is_not_truncated(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    asyncio.run(write_event(File(path), 5))
    path.write_bytes(b'{"theirs": "a long line"}\n')
    with pytest.raises(InvalidRequest, match="was changed by another program"):
        asyncio.run(write_event(File(path), 6))
    assert path.read_bytes() == b'{"theirs": "a long line"}\n'
    path.with_name("out.jsonl.position").unlink()
    asyncio.run(write_event(File(path), 6))
    assert path.read_bytes() == b'{"theirs": "a long line"}\n{"n":6}\n'


@pytest.mark.parametrize("how", ["emptied", "moved away", "replaced"])
def test_the_sink_follows_rotation_by_another_program(tmp_path: Path, how: str) -> None:
    path, before = tmp_path / "out.jsonl", tmp_path / "before"

    async def run() -> None:
        sink = File(path)
        await sink.open()
        await sink.write(make_events([{"n": n} for n in range(3)]))
        if how == "emptied":  # as `copytruncate` does it
            before.write_bytes(path.read_bytes())
            os.truncate(path, 0)
        else:
            path.rename(before)
        if how == "replaced":
            path.write_bytes(b'{"n": "theirs, and longer than all before it"}\n')
        await sink.write(make_events([{"n": 3}], first=3))
        await sink.write(make_events([{"n": 4}], first=4))
        if how == "emptied":
            os.truncate(path, 0)
        await sink.close()

    asyncio.run(run())
    assert before.read_bytes() == b'{"n":0}\n{"n":1}\n{"n":2}\n'
    theirs = b'{"n": "theirs, and longer than all before it"}\n' if how == "replaced" else b""
    assert path.read_bytes() == (b"" if how == "emptied" else theirs + b'{"n":3}\n{"n":4}\n')
    asyncio.run(write_event(File(path), 5, first=5))
    assert [line["n"] for line in read_lines(path)][-1] == 5
    assert b"\0" not in path.read_bytes()


def test_written_events_without_an_ack_are_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    run_and_exit(path, "await sink.write(e[:2]); await sink.acknowledged(e[:2]); await sink.write(e[2:4])")

    async def run() -> None:
        sink = File(path)
        await sink.open()
        await sink.write(make_events([{"n": n} for n in range(6)])[2:])
        await sink.close()

    asyncio.run(run())
    assert [line["n"] for line in read_lines(path)] == [0, 1, 2, 3, 4, 5]


def test_acknowledged_events_are_written_again_after_a_seek(tmp_path: Path) -> None:
    async def run() -> None:
        sink = File(tmp_path / "out.jsonl")
        await sink.open()
        events = make_events([{"n": 0}, {"n": 1}])
        for _ in range(2):
            await sink.write(events)
            await sink.acknowledged(events)
        await sink.close()
        assert [line["n"] for line in read_lines(tmp_path / "out.jsonl")] == [0, 1, 0, 1]

    asyncio.run(run())


def test_a_locked_file_raises_conflict(tmp_path: Path) -> None:
    async def run() -> None:
        first, second = File(tmp_path / "out.jsonl"), File(tmp_path / "out.jsonl")
        await first.open()
        with pytest.raises(Conflict, match="another process"):
            await second.open()
        await first.close()
        await second.open()
        await second.close()

    asyncio.run(run())


def test_a_full_disk_leaves_no_incomplete_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
            await sink.write(make_events([{"n": 0}, {"n": 1}]))
        fail = False
        await sink.write(make_events([{"n": 0}, {"n": 1}]))
        await sink.close()
        assert [line["n"] for line in read_lines(tmp_path / "out.jsonl")] == [0, 1]

    asyncio.run(run())


def test_files_are_rotated_by_age(tmp_path: Path) -> None:
    async def run() -> None:
        sink = File(tmp_path / "out.jsonl", rotate_seconds=1e-9)
        await sink.open()
        for n in range(3):
            await sink.write(make_events([{"n": n}], first=n))
        await sink.close()

    asyncio.run(run())
    assert len(list(tmp_path.glob("out*.jsonl"))) == 3
    assert [line["n"] for line in read_lines(tmp_path / "out.jsonl")] == [0, 1, 2]


@pytest.mark.parametrize("step", ["the announcement", "the name", "the directory", "the new file"])
def test_a_failed_rotation_is_completed_by_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
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
        await sink.write(make_events([{"n": 0}, {"n": 1}]))
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
                await sink.write(make_events([{"n": 2}], first=2))
            await sink.write(make_events([{"n": 2}], first=2))
        await sink.write(make_events([{"n": 3}], first=3))
        await sink.close()

    asyncio.run(run())
    assert failures == [step]
    assert [line["n"] for line in read_lines(tmp_path / "out.jsonl")] == [0, 1, 2, 3]
    assert len(list(tmp_path.glob("out-*.jsonl"))) == 1


def test_close_waits_for_a_cancelled_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
            write = asyncio.create_task(sink.write(make_events([{"n": 0}])))
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
        await again.write(make_events([{"n": 0}, {"n": 1}]))
        await again.close()
        assert [line["n"] for line in read_lines(path)] == [0, 1]

    asyncio.run(run())
