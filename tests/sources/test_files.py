"""Files as sources: once or as they grow, and every line once."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.core.errors import Conflict, NotFound
from penstock.log.log import Log
from penstock.sources import Csv, Feed, Ndjson, Parquet, Source, forget, sources
from tests.log.logs import drain, eventually, letters


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


async def test_a_file_is_followed_while_it_grows_and_when_it_is_rotated(log: Log, queue: str, tmp_path: Path) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text('{"n": 0}\n{"n": ')
    made = Feed(log, Ndjson(path, follow=True), queue, name=queue)
    running = asyncio.create_task(made.run())

    async def pushed(count: int) -> None:
        async def so_many() -> object:
            return made.pushed == count

        await eventually(so_many)

    await pushed(1)
    with path.open("a") as file:
        file.write("1}\n")
        file.flush()
        await pushed(2)
        path.rename(tmp_path / "old.ndjson")
        path.write_text('{"n": 3}\n')
        file.write('{"n": 2}\n')
        file.flush()
    await pushed(4)
    made.stop()
    await running
    assert sorted(each["n"] for each in await data(log, queue)) == [0, 1, 2, 3]


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
