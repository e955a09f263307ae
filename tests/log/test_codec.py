"""A chunk comes back as it went in, or not at all; and a damaged one is named and stops nobody else."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql

from penstock.core.errors import CorruptChunk
from penstock.log import chunk
from penstock.log.chunk import Columns
from penstock.log.log import Log
from tests.log.logs import GROUP, QUEUE, ask, by_key, data, drain, lag, pop, push

texts = st.text(st.characters(exclude_categories=["Cs"]))
lines = st.lists(st.binary().map(lambda line: line.replace(b"\n", b" ")), min_size=1, max_size=30)


def column(values: st.SearchStrategy[Any], count: int) -> st.SearchStrategy[list[Any] | None]:
    return st.one_of(st.none(), st.lists(st.one_of(st.none(), values), min_size=count, max_size=count))


@st.composite
def columns(draw: st.DrawFn) -> Columns:
    some = draw(lines)
    count = len(some)
    return Columns(
        b"\n".join(some),
        count,
        draw(column(texts, count)),
        draw(column(texts, count)),
        draw(column(st.integers(-(2**63), 2**63 - 1), count)),
        draw(column(st.dictionaries(texts, texts, max_size=3), count)),
    )


@given(columns())
def test_a_chunk_comes_back_as_it_went_in(some: Columns) -> None:
    back = chunk.decode(chunk.encode(some))
    assert back == some
    assert len(back.lines()) == some.count


def test_a_chunk_that_repeats_itself_is_stored_small() -> None:
    line = b'{"name": "ada", "amount": 1234.5}'
    some = Columns(b"\n".join([line] * 2000), 2000, ["ada"] * 2000)
    assert len(chunk.encode(some)) < len(line) * 2000 / 50


SMALL = Columns(b'{"n":1}\n{"n":2}', 2, ["ada", None], None, [1, None], [{"a": "b"}, None])
LARGE = Columns(b"\n".join(b'{"number": %d, "text": "abc"}' % i for i in range(100)), 100, ["ada", "bob"] * 50)


@pytest.mark.parametrize("some", [SMALL, LARGE], ids=["raw", "compressed"])
def test_every_flipped_bit_is_detected_or_does_no_harm(some: Columns) -> None:
    body = chunk.encode(some)
    detected = 0
    for place in range(len(body)):
        for bit in range(8):
            damaged = bytearray(body)
            damaged[place] ^= 1 << bit
            try:
                assert chunk.decode(bytes(damaged)) == some, f"bit {bit} of byte {place} changed what was stored"
            except CorruptChunk:
                detected += 1
    assert detected > len(body) * 8 * 0.95


@pytest.mark.parametrize("some", [SMALL, LARGE], ids=["raw", "compressed"])
def test_a_truncated_chunk_is_detected(some: Columns) -> None:
    body = chunk.encode(some)
    for size in range(len(body)):
        with pytest.raises(CorruptChunk):
            chunk.decode(body[:size])


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_chunk_or_corrupt(body: bytes) -> None:
    with contextlib.suppress(CorruptChunk):
        chunk.decode(body)


@pytest.mark.parametrize("codec", [2, 3, 127, 255])
def test_an_unknown_codec_is_named(codec: int) -> None:
    with pytest.raises(CorruptChunk, match=f"codec {codec}"):
        chunk.decode(bytes([codec]) + chunk.encode(SMALL)[1:])


# In the table


def damage(url: str, queue_id: int, key: str, end_offset: int) -> None:
    """Flip a byte in the middle of a stored chunk."""
    statement = sql.SQL(
        "UPDATE {} SET body = set_byte(body, length(body) / 2, get_byte(body, length(body) / 2) # 255) "
        "WHERE partition_id = (SELECT id FROM penstock.partitions WHERE name = %s) AND end_offset = %s"
    ).format(sql.Identifier("penstock", f"chunks_{queue_id}_1"))
    with psycopg.connect(url, autocommit=True) as conn:
        assert conn.execute(statement, (key, end_offset)).rowcount == 1


async def test_a_damaged_chunk_is_named_and_stops_nobody_else(log: Log, other_log: Log, database_url: str) -> None:
    queue = await log.configure(QUEUE)
    for key in ("ada", "bob", "cyd"):
        for part in range(3):
            await push(log, [(part, i) for i in range(3)], key=key)
    damage(database_url, queue.id, "bob", 6)
    lane = ask(database_url, "SELECT id FROM penstock.partitions WHERE name = 'bob'")
    # What lies before the damage comes, and the others come whole.
    everything = [[part, i] for part in range(3) for i in range(3)]
    found: dict[str | None, list[Any]] = {}

    async def drain_into_found() -> None:
        while True:
            events = await pop(log)
            assert all(await log.ack(events))
            for key, some in by_key(events).items():
                found.setdefault(key, []).extend(some)

    with pytest.raises(CorruptChunk) as named:
        await drain_into_found()
    assert found == {"ada": everything, "bob": everything[:3], "cyd": everything}
    for word in (QUEUE, f"partition {lane}", "offsets 3 to 5", f"chunks_{queue.id}_1"):
        assert word in str(named.value)
    await push(log, ["more"], key="ada")
    assert data(await pop(log)) == ["more"]
    # It says how to go on.
    assert "offset 6" in str(named.value)
    await other_log.seek(QUEUE, GROUP, 6, partition="bob")
    assert data(await drain(other_log, partition="bob")) == everything[6:]
    assert await lag(log) == 1


async def test_a_damaged_chunk_is_named_to_those_who_only_look(log: Log, database_url: str) -> None:
    queue = await log.configure(QUEUE)
    for i in range(3):
        await push(log, [i], key="ada")
    damage(database_url, queue.id, "ada", 2)
    assert data(await log.fetch(QUEUE, "ada", 0, 1)) == [0]
    looks: list[Callable[[], Awaitable[object]]] = [lambda: log.fetch(QUEUE, "ada"), lambda: log.browse(QUEUE)]
    for look in looks:
        with pytest.raises(CorruptChunk) as named:
            await look()
        for word in (QUEUE, "partition", "1", f"chunks_{queue.id}_1"):
            assert word in str(named.value)


async def test_a_damaged_chunk_can_be_appended_to(log: Log, database_url: str) -> None:
    queue = await log.configure(QUEUE)
    await push(log, [1], key="ada", ids=["one"])
    damage(database_url, queue.id, "ada", 1)
    (again,) = await push(log, [1], key="ada", ids=["one"])
    assert again.duplicate
    (pushed,) = await push(log, [2], key="ada", ids=["two"])
    assert pushed.offset == 1
