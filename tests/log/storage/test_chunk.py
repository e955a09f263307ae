"""The stored format of chunks: round trips, and detection of damage."""

from __future__ import annotations

import contextlib
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import CorruptChunk
from penstock.log.storage import chunk
from penstock.log.storage.chunk import ChunkColumns

texts = st.text(st.characters(exclude_categories=["Cs"]))
lines = st.lists(st.binary().map(lambda line: line.replace(b"\n", b" ")), min_size=1, max_size=30)


def column(values: st.SearchStrategy[Any], count: int) -> st.SearchStrategy[list[Any] | None]:
    return st.one_of(st.none(), st.lists(st.one_of(st.none(), values), min_size=count, max_size=count))


@st.composite
def columns(draw: st.DrawFn) -> ChunkColumns:
    some = draw(lines)
    count = len(some)
    return ChunkColumns(
        b"\n".join(some),
        count,
        draw(column(texts, count)),
        draw(column(texts, count)),
        draw(column(st.integers(-(2**63), 2**63 - 1), count)),
        draw(column(st.dictionaries(texts, texts, max_size=3), count)),
    )


@given(columns(), st.booleans())
@pytest.mark.slow
def test_a_chunk_round_trips(some: ChunkColumns, readable: bool) -> None:
    stored = chunk.encode(some, readable=readable)
    back = chunk.decode(stored)
    assert back == some
    assert len(back.lines()) == some.count
    lazy = chunk.decode(stored, lazily=True)
    for column, lazy_column in ((some.keys, lazy.keys), (some.ids, lazy.ids)):
        assert (None if lazy_column is None else list(lazy_column)) == column


def test_a_damaged_readable_chunk_is_detected() -> None:
    stored = bytearray(chunk.encode(LARGE, readable=True))
    stored[len(stored) // 2] ^= 1
    with pytest.raises(CorruptChunk, match="its checksum does not match"):
        chunk.decode(bytes(stored))


def test_repetitive_chunks_are_compressed() -> None:
    line = b'{"name": "ada", "amount": 1234.5}'
    some = ChunkColumns(b"\n".join([line] * 2000), 2000, ["ada"] * 2000)
    assert len(chunk.encode(some)) < len(line) * 2000 / 50


SMALL = ChunkColumns(b'{"n":1}\n{"n":2}', 2, ["ada", None], None, [1, None], [{"a": "b"}, None])
LARGE = ChunkColumns(b"\n".join(b'{"number": %d, "text": "abc"}' % i for i in range(100)), 100, ["ada", "bob"] * 50)


@pytest.mark.parametrize("some", [SMALL, LARGE], ids=["raw", "compressed"])
def test_every_flipped_bit_is_detected_or_harmless(some: ChunkColumns) -> None:
    body = chunk.encode(some)
    detected = 0
    for place in range(len(body)):
        for bit in range(8):
            damaged = bytearray(body)
            damaged[place] ^= 1 << bit
            try:
                assert chunk.decode(bytes(damaged)) == some, f"bit {bit} of byte {place} changed the content"
            except CorruptChunk:
                detected += 1
    assert detected > len(body) * 8 * 0.95


@pytest.mark.parametrize("some", [SMALL, LARGE], ids=["raw", "compressed"])
def test_a_truncated_chunk_is_detected(some: ChunkColumns) -> None:
    body = chunk.encode(some)
    for size in range(len(body)):
        with pytest.raises(CorruptChunk):
            chunk.decode(body[:size])


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_chunk_or_corrupt(body: bytes) -> None:
    with contextlib.suppress(CorruptChunk):
        chunk.decode(body)


@pytest.mark.parametrize("codec", [3, 4, 127, 255])
def test_an_unknown_codec_is_named(codec: int) -> None:
    with pytest.raises(CorruptChunk, match=f"codec {codec}"):
        chunk.decode(bytes([codec]) + chunk.encode(SMALL)[1:])


def raw(payload: bytes) -> bytes:
    """Return a chunk with a valid checksum and any content."""
    return b"\0" + zlib.crc32(payload).to_bytes(4, "little") + payload


def framed(payload: bytes, *, level: int = 1) -> bytes:
    return b"\1" + zstandard.ZstdCompressor(level=level, write_checksum=True).compress(payload)


def with_meta(meta: bytes, data: bytes = b"1") -> bytes:
    return len(meta).to_bytes(4, "little") + meta + data


msgpack = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
).map(msgspec.msgpack.encode)


@settings(max_examples=50)
@given(st.one_of(msgpack, st.binary(max_size=100)), st.binary(max_size=100), st.sampled_from([raw, framed]))
def test_arbitrary_content_with_a_valid_checksum_is_refused_or_consistent(
    meta: bytes, data: bytes, form: Callable[[bytes], bytes]
) -> None:
    with contextlib.suppress(CorruptChunk):
        found = chunk.decode(form(with_meta(meta, data)))
        assert isinstance(found.count, int)
        optional = (found.keys, found.ids, found.times, found.headers)
        assert all(column is None or len(column) == found.count for column in optional)


@settings(max_examples=40)
@given(columns(), st.data())
def test_lost_added_or_changed_bytes_are_detected_or_harmless(some: ChunkColumns, data: st.DataObject) -> None:
    body = chunk.encode(some)
    start = data.draw(st.integers(0, len(body)))
    stop = data.draw(st.integers(start, len(body)))
    damaged = body[:start] + data.draw(st.binary(max_size=20)) + body[stop:]
    with contextlib.suppress(CorruptChunk):
        assert chunk.decode(damaged, some.count) == some


HOSTILE = {
    "a list of four thousand million": raw(with_meta(b"\x95\x01\xdd\xff\xff\xff\xff")),
    "a mapping of four thousand million": raw(with_meta(b"\x95\x01\xc0\xc0\xc0\x91\xdf\xff\xff\xff\xff")),
    "a text of four gigabytes": raw(with_meta(b"\x95\x01\x91\xdb\xff\xff\xff\xff")),
    "lists in lists in lists": raw(with_meta(b"\x91" * 100_000)),
    "a size beyond its end": raw(b"\xff\xff\xff\xff"),
    "fewer keys than events": raw(with_meta(msgspec.msgpack.encode((2, ["a"], None, None, None)), b"1\n2")),
    "a number that is a text": raw(with_meta(msgspec.msgpack.encode(("2", None, None, None, None)))),
    # Frames with a size of 2 bytes, of 2**62 bytes, and without a size.
    "a frame of more than it says": b"\1\x28\xb5\x2f\xfd\x20\x02" + b"\x01\x00\x00" + b"a" * 20,
    "a frame of exabytes": b"\1\x28\xb5\x2f\xfd\xe0" + (2**62).to_bytes(8, "little") + b"\x01\x00\x00",
    "a frame of unknown size": b"\1" + zstandard.ZstdCompressor(write_content_size=False).compress(bytes(5000)),
    "a bomb": framed(bytes(300 << 20)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_sizes_are_refused_without_allocating_memory(name: str) -> None:
    body = HOSTILE[name]
    tracemalloc.start()
    try:
        with pytest.raises(CorruptChunk):
            chunk.decode(body)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_chunk_in_the_row_of_another_is_detected() -> None:
    with pytest.raises(CorruptChunk, match="100 events where 99"):
        chunk.decode(chunk.encode(LARGE), 99)


@pytest.mark.long
@pytest.mark.timeout(1800)
@settings(max_examples=20_000, deadline=None)
@given(columns(), st.data())
def test_random_damage_is_detected_or_harmless(some: ChunkColumns, data: st.DataObject) -> None:
    test_lost_added_or_changed_bytes_are_detected_or_harmless.hypothesis.inner_test(some, data)  # type: ignore[attr-defined]
