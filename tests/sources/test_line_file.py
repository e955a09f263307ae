"""Text files as sources: read once, followed, and rotated."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.core.errors import NotFound
from penstock.log.log import Log
from penstock.sources import Ndjson, Parquet, forget_source, list_sources, rotation
from tests.log.logs import drain, letters
from tests.sources.runs import data, follow_source, lines, make_old, numbers, run_source


async def test_a_file_is_read_once(log: Log, queue: str, tmp_path: Path) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text("".join(f'{{"n": {n}, "who": "w{n % 2}"}}\n' for n in range(10)) + '{"n": 10, "who": "w0"}')

    first = await run_source(log, queue, Ndjson(path), key_field="who", batch=3)
    second = await run_source(log, queue, Ndjson(path), key_field="who")

    events = await drain(log, queue)
    assert {key: [e.data["n"] for e in events if e.key == key] for key in ("w0", "w1")} == {
        "w0": [0, 2, 4, 6, 8, 10],
        "w1": [1, 3, 5, 7, 9],
    }
    assert (first.pushed, second.pushed) == (11, 0)
    (info,) = [each for each in await list_sources(log) if each.queue == queue]
    assert (info.kind, info.events) == ("ndjson", 11)
    assert await forget_source(log, info.name)
    assert (await run_source(log, queue, Ndjson(path))).pushed == 11


async def test_invalid_lines_become_dead_letters(log: Log, queue: str, tmp_path: Path) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text('{"n": 0}\nnonsense\n\n{"n": 1}\n{"n": \n{"n": 2}\n')

    made = await run_source(log, queue, Ndjson(path))

    assert (made.pushed, made.rejected) == (3, 2)
    assert [each["n"] for each in await data(log, queue)] == [0, 1, 2]
    assert len(await letters(log, queue)) == 2


async def test_a_file_is_followed_while_it_grows(log: Log, queue: str, tmp_path: Path) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text('{"n": 0}\n{"n": ')
    async with follow_source(log, queue, Ndjson(path, follow=True)) as pushed:
        await pushed(1)
        with path.open("a") as file:
            file.write("1}\n")
        await pushed(2)
    assert await numbers(log, queue) == [0, 1]


async def test_lines_written_after_a_rotation_are_read_before_the_next_file(
    log: Log, queue: str, tmp_path: Path
) -> None:
    path, old = tmp_path / "in.ndjson", tmp_path / "old.ndjson"
    path.write_text(lines(0))
    source = Ndjson(path, follow=True, quiet_seconds=3600)
    async with follow_source(log, queue, source) as pushed:
        await pushed(1)
        with path.open("a") as writer:
            # Like logrotate: the writer uses the old file for a while after the rename.
            path.rename(old)
            path.write_text("")
            for n in range(1, 4):
                writer.write(lines(n))
                writer.flush()
                await pushed(n + 1)
            path.write_text(lines(5))
            writer.write('{"n": 4}')
        source.quiet_seconds = 0.0
        await pushed(6)
    assert await numbers(log, queue) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("follow", [False, True])
async def test_files_rotated_while_the_source_was_stopped_are_read_first(
    log: Log, queue: str, tmp_path: Path, follow: bool
) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text(lines(0))
    await run_source(log, queue, Ndjson(path))
    with path.open("a") as file:
        file.write(lines(1))
    path.rename(tmp_path / "in.ndjson.3")
    # Two more rotations, a copy of another program, a compressed file, and unrelated files.
    for name, held, age in (
        ("in.ndjson.3", None, 500),
        ("in.ndjson.2", lines(2), 400),
        ("in-20260131.ndjson", lines(3), 300),
        ("in.ndjson.1", lines(3), 200),
        ("in.ndjson.4.gz", "not read", 100),
        ("in-2.ndjson", lines(100), 100),
        ("in.ndjson", lines(3, 4), 10),
    ):
        if held is not None:
            (tmp_path / name).write_text(held)
        os.utime(tmp_path / name, (time.time() - age, time.time() - age))

    await run_source(log, queue, Ndjson(path, follow=follow))

    assert await numbers(log, queue) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("follow", [False, True])
async def test_rotated_files_after_a_deleted_one_are_read_in_order(
    log: Log, queue: str, tmp_path: Path, follow: bool
) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text(lines(0))
    os.utime(path, (time.time() - 500, time.time() - 500))
    await run_source(log, queue, Ndjson(path))
    path.unlink()  # compressed by now
    # An older file, two unread files, and a copy.
    for name, held, age in (
        ("in.ndjson.4", lines(100), 600),
        ("in.ndjson.3.gz", "not read", 500),
        ("in.ndjson.2", lines(1), 400),
        ("in.ndjson.1", lines(2), 300),
        ("in-20260131.ndjson", lines(3), 200),
        ("in.ndjson", lines(3, 4), 100),
    ):
        (tmp_path / name).write_text(held)
        os.utime(tmp_path / name, (time.time() - age, time.time() - age))

    await run_source(log, queue, Ndjson(path, follow=follow))

    assert await numbers(log, queue) == [0, 1, 2, 3, 4]


async def test_a_file_that_is_still_written_is_not_its_own_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, old = tmp_path / "in.ndjson", tmp_path / "in.ndjson.1"
    old.write_text(lines(0))
    path.write_text(lines(2))
    make_old(old)
    look = os.fstat

    def written_meanwhile(number: int) -> os.stat_result:
        found = look(number)
        if found.st_ino == old.stat().st_ino:
            with old.open("a") as writer:
                writer.write(lines(1))
        return found

    with old.open("rb") as file:
        monkeypatch.setattr(os, "fstat", written_meanwhile)
        following = rotation.open_next(path, file)
        monkeypatch.undo()
    assert following is not None
    with following:
        assert following.name == str(path)


async def test_copy_and_truncate_loses_no_lines(log: Log, queue: str, tmp_path: Path) -> None:
    path, copy = tmp_path / "in.ndjson", tmp_path / "in.ndjson.1"
    path.write_text(lines(0))
    await run_source(log, queue, Ndjson(path))
    copy.write_text(lines(0, 1))
    make_old(copy)
    path.write_text(lines(2))

    await run_source(log, queue, Ndjson(path, follow=True))

    assert await numbers(log, queue) == [0, 1, 2]


@pytest.mark.parametrize("number", [5, 50])
async def test_a_rewritten_file_is_read_from_its_beginning(log: Log, queue: str, tmp_path: Path, number: int) -> None:
    path = tmp_path / "export.ndjson"
    path.write_text(lines(*range(10)))
    await run_source(log, queue, Ndjson(path))
    path.write_text(lines(*range(100, 100 + number)))

    await run_source(log, queue, Ndjson(path))

    assert await numbers(log, queue) == [*range(10), *range(100, 100 + number)]


async def test_a_reused_inode_is_not_taken_for_the_old_file(tmp_path: Path) -> None:
    path, other = tmp_path / "in.ndjson", tmp_path / "other.ndjson"
    path.write_text(lines(0))
    other.write_text(lines(*range(10, 20)))
    number = other.stat().st_ino
    for position in (
        {"inode": number, "offset": 0, "before": "any"},
        {"inode": number, "offset": len(lines(0)), "before": "another"},
        {"inode": number, "offset": len(lines(0))},
    ):
        source = Ndjson(path)
        read = await source.read(position, 10)
        await source.close()
        assert read.lines == [b'{"n": 0}']


async def test_positions_of_early_versions_are_continued(log: Log, queue: str, tmp_path: Path) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text(lines(0, 1))
    position = {"inode": path.stat().st_ino, "offset": len(lines(0))}
    for place in (path, tmp_path / "in.ndjson.1"):
        path.rename(place)
        source = Ndjson(path)
        read = await source.read(position, 10)
        await source.close()
        assert read.lines == [b'{"n": 1}']

    table = tmp_path / "in.parquet"
    pq.write_table(pa.table({"n": [0, 1]}), table)
    assert (await Parquet(table).read({"file": "in.parquet", "row": 1}, 10)).lines == [b'{"n":1}']


async def test_a_missing_file_raises_not_found(log: Log, queue: str, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="missing"):
        await run_source(log, queue, Ndjson(tmp_path / "missing"))
