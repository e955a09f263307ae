"""Files as sources: once or as they grow, and every line once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.core.errors import Conflict, InvalidRequest, NotFound
from penstock.log.log import Log
from penstock.sources import Csv, Feed, Ndjson, Parquet, Source, forget, rotation, sources
from tests.log.logs import drain, eventually, letters, opened
from tests.log.proxy import proxied


async def feed(log: Log, queue: str, source: Source, **options: Any) -> Feed:
    made = Feed(log, source, queue, **{"name": f"source of {queue}", **options})
    await made.run(idle_seconds=0.3)
    return made


async def data(log: Log, queue: str) -> list[Any]:
    return [event.data for event in await drain(log, queue)]


async def test_a_file_is_read_once_however_often_it_is_asked_for(log: Log, queue: str, tmp_path: Path) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text("".join(f'{{"n": {n}, "who": "w{n % 2}"}}\n' for n in range(10)) + '{"n": 10, "who": "w0"}')

    first = await feed(log, queue, Ndjson(path), key_field="who", batch=3)
    second = await feed(log, queue, Ndjson(path), key_field="who")

    events = await drain(log, queue)
    assert {key: [e.data["n"] for e in events if e.key == key] for key in ("w0", "w1")} == {
        "w0": [0, 2, 4, 6, 8, 10],
        "w1": [1, 3, 5, 7, 9],
    }
    assert (first.pushed, second.pushed) == (11, 0)
    (info,) = [each for each in await sources(log) if each.queue == queue]
    assert (info.kind, info.events) == ("ndjson", 11)
    assert await forget(log, info.name)
    assert (await feed(log, queue, Ndjson(path))).pushed == 11


async def test_lines_that_are_no_events_become_dead_letters_and_the_others_go_on(
    log: Log, queue: str, tmp_path: Path
) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text('{"n": 0}\nnonsense\n\n{"n": 1}\n{"n": \n{"n": 2}\n')

    made = await feed(log, queue, Ndjson(path))

    assert (made.pushed, made.rejected) == (3, 2)
    assert [each["n"] for each in await data(log, queue)] == [0, 1, 2]
    assert len(await letters(log, queue)) == 2


@asynccontextmanager
async def following(log: Log, queue: str, source: Source, **options: Any) -> AsyncIterator[Callable[[int], Any]]:
    """Read it as it grows; what is given waits until so many are pushed."""
    made = Feed(log, source, queue, name=queue, **options)
    running = asyncio.create_task(made.run())

    async def pushed(count: int) -> None:
        async def so_many() -> object:
            return made.pushed == count or (running.done() and running.result())

        await eventually(so_many)

    try:
        yield pushed
    finally:
        made.stop()
        await running


def lines(*numbers: int) -> str:
    return "".join(f'{{"n": {n}}}\n' for n in numbers)


def settle(path: Path) -> None:
    """Nothing has come into the file for an hour."""
    hour = time.time() - 3600
    os.utime(path, (hour, hour))


async def numbers(log: Log, queue: str) -> list[int]:
    return [each["n"] for each in await data(log, queue)]


async def test_a_file_is_followed_while_it_grows(log: Log, queue: str, tmp_path: Path) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text('{"n": 0}\n{"n": ')
    async with following(log, queue, Ndjson(path, follow=True)) as pushed:
        await pushed(1)
        with path.open("a") as file:
            file.write("1}\n")
        await pushed(2)
    assert await numbers(log, queue) == [0, 1]


async def test_what_is_written_into_a_file_after_it_was_rotated_comes_before_the_next(
    log: Log, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, old = tmp_path / "in.ndjson", tmp_path / "old.ndjson"
    path.write_text(lines(0))
    async with following(log, queue, Ndjson(path, follow=True)) as pushed:
        await pushed(1)
        with path.open("a") as writer:
            # As logrotate does it: whoever writes goes on in the old one until told, while the feed looks at both.
            path.rename(old)
            path.write_text("")
            for n in range(1, 4):
                writer.write(lines(n))
                writer.flush()
                await pushed(n + 1)
            path.write_text(lines(5))
            writer.write('{"n": 4}')
        monkeypatch.setattr("penstock.sources.files._LEAVE_SECONDS", 0.0)
        await pushed(6)
    assert await numbers(log, queue) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("follow", [False, True])
async def test_what_was_rotated_while_nobody_read_is_read_first(
    log: Log, queue: str, tmp_path: Path, follow: bool
) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text(lines(0))
    await feed(log, queue, Ndjson(path))
    with path.open("a") as file:
        file.write(lines(1))
    path.rename(tmp_path / "in.ndjson.3")
    # Two more rotations, one copy that somebody else keeps, one that is compressed, and other files beside it.
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

    await feed(log, queue, Ndjson(path, follow=follow))

    assert await numbers(log, queue) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("follow", [False, True])
async def test_those_rotated_after_one_that_is_gone_are_read_in_their_order(
    log: Log, queue: str, tmp_path: Path, follow: bool
) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text(lines(0))
    os.utime(path, (time.time() - 500, time.time() - 500))
    await feed(log, queue, Ndjson(path))
    path.unlink()  # compressed by now
    # One from before, two that nobody has read, a copy of one.
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

    await feed(log, queue, Ndjson(path, follow=follow))

    assert await numbers(log, queue) == [0, 1, 2, 3, 4]


async def test_a_file_that_is_still_written_is_not_taken_for_the_one_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, old = tmp_path / "in.ndjson", tmp_path / "in.ndjson.1"
    old.write_text(lines(0))
    path.write_text(lines(2))
    settle(old)
    look = os.fstat

    def written_meanwhile(number: int) -> os.stat_result:
        found = look(number)
        if found.st_ino == old.stat().st_ino:
            with old.open("a") as writer:
                writer.write(lines(1))
        return found

    with old.open("rb") as file:
        monkeypatch.setattr(os, "fstat", written_meanwhile)
        following = rotation.after(path, file)
        monkeypatch.undo()
    assert following is not None
    with following:
        assert following.name == str(path)


async def test_a_file_that_is_copied_and_cut_loses_nothing(log: Log, queue: str, tmp_path: Path) -> None:
    path, copy = tmp_path / "in.ndjson", tmp_path / "in.ndjson.1"
    path.write_text(lines(0))
    await feed(log, queue, Ndjson(path))
    copy.write_text(lines(0, 1))
    settle(copy)
    path.write_text(lines(2))

    await feed(log, queue, Ndjson(path, follow=True))

    assert await numbers(log, queue) == [0, 1, 2]


@pytest.mark.parametrize("number", [5, 50])
async def test_a_file_that_was_written_anew_is_read_from_its_beginning(
    log: Log, queue: str, tmp_path: Path, number: int
) -> None:
    path = tmp_path / "export.ndjson"
    path.write_text(lines(*range(10)))
    await feed(log, queue, Ndjson(path))
    path.write_text(lines(*range(100, 100 + number)))

    await feed(log, queue, Ndjson(path))

    assert await numbers(log, queue) == [*range(10), *range(100, 100 + number)]


async def test_a_file_that_has_got_the_number_of_another_is_not_taken_for_it(tmp_path: Path) -> None:
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


async def test_a_position_of_the_version_before_is_gone_on_from(log: Log, queue: str, tmp_path: Path) -> None:
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


async def test_a_feed_waits_for_a_database_that_is_away(
    sinks_url: str, log: Log, queue: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text(lines(0))
    async with (
        proxied(sinks_url, tmp_path) as (proxy, through),
        opened(through) as behind,
        following(behind, queue, Ndjson(path, follow=True)) as pushed,
    ):
        await pushed(1)
        socket = tmp_path / ".s.PGSQL.5432"
        socket.rename(tmp_path / "away")
        await proxy.close()
        with path.open("a") as file:
            file.write(lines(1))

        async def tried() -> object:
            return sum(each.name == "penstock.sources" for each in caplog.records) >= 3

        await eventually(tried)
        (tmp_path / "away").rename(socket)
        await pushed(2)
    assert await numbers(log, queue) == [0, 1]


FEEDER = """
import asyncio, sys
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.log import Log
from penstock.sources import Feed, Ndjson
async def main(url, queue, path):
    log = await Log(Database(Settings(database_url=url))).open()
    await Feed(log, Ndjson(path, follow=True), queue, name=queue, batch=20).run()
asyncio.run(main(*sys.argv[1:]))
"""


def start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command)


async def test_a_feeder_that_is_killed_pushes_every_line_once(
    log: Log, queue: str, sinks_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text("".join(f'{{"n": {n}}}\n' for n in range(3000)))

    async def read() -> int:
        return sum(each.events for each in await sources(log) if each.name == queue)

    feeder = start([sys.executable, "-c", FEEDER, sinks_url, queue, str(path)])

    async def some() -> object:
        return await read() > 100

    await eventually(some)
    feeder.send_signal(signal.SIGKILL)
    feeder.wait()
    await feed(log, queue, Ndjson(path), name=queue)

    assert [each["n"] for each in await data(log, queue)] == list(range(3000))


async def test_two_who_read_one_source_do_not_push_twice(log: Log, queue: str, tmp_path: Path) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text("".join(f'{{"n": {n}}}\n' for n in range(200)))
    feeds = [Feed(log, Ndjson(path), queue, name=queue, batch=5) for _ in range(2)]

    ends = await asyncio.gather(*(each.run() for each in feeds), return_exceptions=True)

    assert [type(end) for end in ends if end is not None] in ([], [Conflict])
    await feed(log, queue, Ndjson(path), name=queue)
    assert [each["n"] for each in await data(log, queue)] == list(range(200))


async def test_csv_keeps_what_it_can_and_quotes_what_it_must(log: Log, queue: str, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text(
        '\ufeffname,zip,amount,note\nada,00123,1.50,"two\nlines, and ""quotes"""\nbob,90210,-3,\ncy,1\ndee,1,2,3,4,5\n'
    )

    await feed(log, queue, Csv(path), batch=1)

    assert await data(log, queue) == [
        {"name": "ada", "zip": "00123", "amount": 1.5, "note": 'two\nlines, and "quotes"'},
        {"name": "bob", "zip": 90210, "amount": -3, "note": None},
        {"name": "cy", "zip": 1, "amount": None, "note": None},
        {"name": "dee", "zip": 1, "amount": 2, "note": 3, "_more": ["4", "5"]},
    ]


async def test_lines_that_are_no_records_become_dead_letters_each_alone(log: Log, queue: str, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    long = "x" * 200_000
    path.write_bytes(f'n,note\n1,"a"\n2,"b\n3,c\n4,"d"d\n5,e\rf\n6,{long}\n7,g\n8,"two\nlines"\n9,"h\n'.encode())

    made = await feed(log, queue, Csv(path), batch=4)

    assert [each["n"] for each in await data(log, queue)] == [1, 3, 7, 8]
    assert made.rejected == 5
    found = sorted(str(each.data)[:4].strip() for each in await letters(log, queue))
    assert found == ['2,"b', '4,"d', "5,e", "6,xx", '9,"h']


async def test_a_stray_quote_in_a_file_that_is_followed_does_not_hold_up_the_rest(
    log: Log, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "in.csv"
    path.write_text('n,note\n1,a\n2,"b\n3,c\n')
    async with following(log, queue, Csv(path, follow=True)) as pushed:
        await pushed(1)
        with path.open("a") as file:
            file.write("4,d\n5,")
        monkeypatch.setattr("penstock.sources.files._LEAVE_SECONDS", 0.0)
        await pushed(3)
        with path.open("a") as file:
            file.write("e\n")  # a line that has no end yet is waited for, however long
        await pushed(4)
    assert await data(log, queue) == [
        {"n": 1, "note": "a"},
        {"n": 3, "note": "c"},
        {"n": 4, "note": "d"},
        {"n": 5, "note": "e"},
    ]
    assert [each.data for each in await letters(log, queue)] == ['2,"b\n']


async def test_rows_that_json_cannot_hold_are_told_as_near_as_can_be(log: Log, queue: str, tmp_path: Path) -> None:
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

    made = await feed(log, queue, Parquet(path))

    near = {"at": "2023-11-14T22:13:20.123456Z", "far": "1970-01-01T00:00:00"}
    assert await data(log, queue) == [
        {"n": 1.5, "raw": "AP8=", "within": [{"at": "2023-11-14T22:13:20.123456"}], **near},
        {"n": None, "raw": None, "within": [], **near},
    ]
    assert made.rejected == 1
    assert [each.data for each in await letters(log, queue)] == [{"file": "in.parquet", "row": 2}]


async def test_a_file_in_another_format_is_refused_and_costs_one_transaction(
    log: Log, queue: str, tmp_path: Path
) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text("nonsense\n" * 1100)
    with pytest.raises(InvalidRequest, match="hardly ndjson"):
        await feed(log, queue, Ndjson(path))
    assert await letters(log, queue) == []
    made = await feed(log, queue, Ndjson(path), batch=1000)
    assert (made.pushed, made.rejected) == (0, 1100)

    broken = tmp_path / "in.parquet"
    broken.write_bytes(b"nonsense")
    with pytest.raises(InvalidRequest, match="as Parquet"):
        await feed(log, queue, Parquet(broken), name="broken")


async def test_a_parquet_file_that_was_written_anew_is_read_again(log: Log, queue: str, tmp_path: Path) -> None:
    path = tmp_path / "export.parquet"
    for first in (0, 100):
        pq.write_table(pa.table({"n": list(range(first, first + 5))}), path)
        await feed(log, queue, Parquet(path))
        await feed(log, queue, Parquet(path))
    assert await numbers(log, queue) == [*range(5), *range(100, 105)]


async def test_parquet_files_of_a_directory_are_read_in_order_and_on(log: Log, queue: str, tmp_path: Path) -> None:
    def write(name: str, numbers: range) -> None:
        pq.write_table(pa.table({"n": list(numbers)}), tmp_path / name, row_group_size=4)

    write("a.parquet", range(10))
    write("b.parquet", range(10, 15))
    first = await feed(log, queue, Parquet(tmp_path), batch=3)
    write("c.parquet", range(15, 20))
    second = await feed(log, queue, Parquet(tmp_path))

    assert (first.pushed, second.pushed) == (15, 5)
    assert [each["n"] for each in await data(log, queue)] == list(range(20))


async def test_a_file_that_is_not_there_is_named(log: Log, queue: str, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="missing"):
        await feed(log, queue, Ndjson(tmp_path / "missing"))


def test_positions_are_json(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("a,b\n1,2\n")
    source = Csv(path)
    read = asyncio.run(source.read(None, 10))
    asyncio.run(source.close())
    assert json.loads(json.dumps(read.position)) == read.position
