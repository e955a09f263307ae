"""CSV files as sources."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from penstock.log.log import Log
from penstock.sources import Csv
from tests.log.logs import letters
from tests.sources.runs import data, follow_source, run_source


async def test_csv_values_are_converted(log: Log, queue: str, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text(
        '\ufeffname,zip,amount,note\nada,00123,1.50,"two\nlines, and ""quotes"""\nbob,90210,-3,\ncy,1\ndee,1,2,3,4,5\n'
    )

    await run_source(log, queue, Csv(path), batch=1)

    assert await data(log, queue) == [
        {"name": "ada", "zip": "00123", "amount": 1.5, "note": 'two\nlines, and "quotes"'},
        {"name": "bob", "zip": 90210, "amount": -3, "note": None},
        {"name": "cy", "zip": 1, "amount": None, "note": None},
        {"name": "dee", "zip": 1, "amount": 2, "note": 3, "_more": ["4", "5"]},
    ]


async def test_invalid_records_become_single_dead_letters(log: Log, queue: str, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    long = "x" * 200_000
    path.write_bytes(f'n,note\n1,"a"\n2,"b\n3,c\n4,"d"d\n5,e\rf\n6,{long}\n7,g\n8,"two\nlines"\n9,"h\n'.encode())

    made = await run_source(log, queue, Csv(path), batch=4)

    assert [each["n"] for each in await data(log, queue)] == [1, 3, 7, 8]
    assert made.rejected == 5
    found = sorted(str(each.data)[:4].strip() for each in await letters(log, queue))
    assert found == ['2,"b', '4,"d', "5,e", "6,xx", '9,"h']


async def test_a_stray_quote_in_a_followed_file_does_not_block_the_rest(log: Log, queue: str, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text('n,note\n1,a\n2,"b\n3,c\n')
    source = Csv(path, follow=True, quiet_seconds=3600)
    async with follow_source(log, queue, source) as pushed:
        await pushed(1)
        with path.open("a") as file:
            file.write("4,d\n5,")
        source.quiet_seconds = 0.0
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


def test_positions_are_json(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("a,b\n1,2\n")
    source = Csv(path)
    read = asyncio.run(source.read(None, 10))
    asyncio.run(source.close())
    assert json.loads(json.dumps(read.position)) == read.position
