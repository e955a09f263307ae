"""Packed strings of a chunk are decoded to a column."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import CorruptChunk
from penstock.engine.worker.chunk_slices import decode_strings
from penstock.log.storage import chunk

_ascii = st.text(st.characters(max_codepoint=127, exclude_characters="\0"), max_size=34)
_any = st.one_of(st.none(), st.text(max_size=40), st.sampled_from(["", "ä" * 20, "x" * 31, "x" * 32, "y" * 300]))


def _column(texts: list[str | None]) -> list[str | None]:
    body = chunk.encode(chunk.ChunkColumns(b"\n".join([b"1"] * len(texts)), len(texts), texts, list(texts)))
    columns = chunk.decode(body, len(texts), lazily=True)
    assert isinstance(columns.keys, chunk.PackedStrings)
    assert columns.ids is not None
    assert columns.ids[0] == texts[0]
    assert columns.ids[1:2] == texts[1:2]
    found = decode_strings(columns.keys)
    if not isinstance(found, pa.Array):
        return list(found)
    found.validate(full=True)
    return list(found.to_pylist())


@settings(deadline=None)
@given(st.lists(st.one_of(_ascii, _any), min_size=1, max_size=12), st.sampled_from([1, 7, 40]))
def test_decoded_strings_equal_the_packed_ones(texts: list[str | None], times: int) -> None:
    assert _column(texts * times) == texts * times


@settings(deadline=None)
@given(st.lists(_ascii, min_size=1, max_size=100))
def test_short_ascii_strings(texts: list[str | None]) -> None:
    assert _column(texts * 32) == texts * 32


@settings(deadline=None)
@given(st.integers(0, 40), st.data())
def test_strings_of_one_length(size: int, data: st.DataObject) -> None:
    texts = data.draw(st.lists(st.text("ab0~\x7f", min_size=size, max_size=size), min_size=32, max_size=80))
    assert _column(list(texts)) == texts


def test_strings_are_unpacked_once() -> None:
    packed = chunk.PackedStrings(msgspec.Raw(msgspec.msgpack.encode(["a", None, "b"])))
    assert packed.unpacked() is packed.unpacked()
    assert [packed[0], packed[2], *packed] == ["a", "b", "a", None, "b"]


@pytest.mark.parametrize("count", [3, 70_000])
def test_a_list_of_other_values_is_a_corrupt_chunk(count: int) -> None:
    packed = msgspec.Raw(msgspec.msgpack.encode([1, "a", 2] * count))
    with pytest.raises(CorruptChunk, match="strings cannot be decoded"):
        decode_strings(chunk.PackedStrings(packed))


def test_a_column_that_is_not_a_list_is_a_corrupt_chunk() -> None:
    meta = msgspec.msgpack.encode((2, "ab", None, None, None))
    payload = len(meta).to_bytes(4, "little") + meta + b"1\n2"
    body = b"\1" + zstandard.ZstdCompressor(write_checksum=True).compress(payload)
    with pytest.raises(CorruptChunk, match="begins with"):
        chunk.decode(body, 2, lazily=True)


def test_a_chunk_without_keys_has_no_key_column() -> None:
    columns = chunk.decode(chunk.encode(chunk.ChunkColumns(b"1\n2", 2)), 2, lazily=True)
    assert columns.keys is None
    assert columns.ids is None
