"""The stored form of a run of events: one row of a chunks table.

A chunk is columnar: the events' data as NDJSON, so that a reader can hand it to a JSON parser as it is, and
beside it the columns that some events have (keys, ids, times, headers). A byte in front names the codec; every
codec carries a checksum.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator, Sequence
from typing import overload

import msgspec
import zstandard

from penstock.core.errors import CorruptChunk

#: No chunk holds more events than this; readers rely on it to bound an index range.
MAX_EVENTS = 4096
#: A chunk is closed when its data reaches this size.
TARGET_BYTES = 1 << 20

_RAW = 0
_ZSTD = 1
_SMALL = 256
_LEVEL = 1
# What no chunk comes near to: a frame that claims more has lost its head, and is not worth the memory.
_LARGEST = 1 << 28


def _plain(value: object) -> str:
    """Keys and ids may be of a type derived from str."""
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"a chunk cannot hold a {type(value).__name__}")


_pack = msgspec.msgpack.Encoder(enc_hook=_plain).encode
_unpack = msgspec.msgpack.Decoder(
    tuple[
        int,
        list[str | None] | None,
        list[str | None] | None,
        list[int | None] | None,
        list[dict[str, str] | None] | None,
    ]
).decode


_unpack_lazily = msgspec.msgpack.Decoder(
    tuple[int, msgspec.Raw, msgspec.Raw, list[int | None] | None, list[dict[str, str] | None] | None]
).decode
_unpack_texts = msgspec.msgpack.Decoder(list[str | None]).decode

_NOTHING_BESIDE = (None, None, None, None)
_meta_of_one = _pack((1, *_NOTHING_BESIDE))
_ONE = len(_meta_of_one).to_bytes(4, "little") + _meta_of_one


class Texts(Sequence[str | None]):
    """A column of texts as it is packed, for who can do without a str for each, or without all of them."""

    __slots__ = ("_count", "_packed", "_texts", "items")

    def __init__(self, packed: msgspec.Raw) -> None:
        self._packed = packed
        self._texts: list[str | None] | None = None
        data = memoryview(packed)
        match data[0]:
            case head if head & 0xF0 == 0x90:
                self._count, start = head & 0x0F, 1
            case 0xDC | 0xDD as head:
                start = 3 if head == 0xDC else 5
                self._count = int.from_bytes(data[1:start], "big")
            case head:
                raise ValueError(f"a column of texts begins with {head}")
        #: The texts, each with its size before it.
        self.items = data[start:]

    def unpacked(self) -> list[str | None]:
        """The texts, or CorruptChunk if they are none."""
        if self._texts is None:
            try:
                self._texts = _unpack_texts(self._packed)
            except msgspec.MsgspecError as error:
                raise CorruptChunk(f"a column of {self._count} texts cannot be decoded: {error}") from error
        return self._texts

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str | None]:
        return iter(self.unpacked())

    @overload
    def __getitem__(self, place: int) -> str | None: ...
    @overload
    def __getitem__(self, place: slice) -> list[str | None]: ...
    def __getitem__(self, place: int | slice) -> str | list[str | None] | None:
        return self.unpacked()[place]


class Columns(msgspec.Struct, frozen=True, gc=False):
    """The events of one chunk, column by column; a column that no event uses is None."""

    data: bytes
    count: int
    keys: Sequence[str | None] | None = None
    ids: Sequence[str | None] | None = None
    times: Sequence[int | None] | None = None
    headers: Sequence[dict[str, str] | None] | None = None

    def beside(self) -> tuple[Sequence[object] | None, ...]:
        """What there is beside the data."""
        return self.keys, self.ids, self.times, self.headers

    def lines(self) -> list[bytes]:
        """The JSON text of each event's data."""
        return self.data.split(b"\n")


def encode(columns: Columns) -> bytes:
    """Pack a chunk."""
    beside = columns.keys, columns.ids, columns.times, columns.headers
    if columns.count == 1 and beside == _NOTHING_BESIDE:
        # What most chunks of a queue with many lanes are.
        payload = _ONE + columns.data
    else:
        meta = _pack((columns.count, *beside))
        payload = b"".join((len(meta).to_bytes(4, "little"), meta, columns.data))
    if len(payload) < _SMALL:
        return b"%c%b%b" % (_RAW, zlib.crc32(payload).to_bytes(4, "little"), payload)
    return b"%c%b" % (_ZSTD, _codecs.compressor.compress(payload))


def decode(body: bytes, expected: int | None = None, *, lazily: bool = False) -> Columns:
    """Unpack a chunk of so many events, or raise CorruptChunk; keys and ids may stay as they are packed."""
    try:
        payload = _payload(body)
        size = int.from_bytes(payload[:4], "little")
        meta = payload[4 : 4 + size]
        if lazily:
            count, keys, ids, times, headers = _unpack_lazily(meta)
            columns = Columns(payload[4 + size :], count, _texts(keys), _texts(ids), times, headers)
        else:
            columns = Columns(payload[4 + size :], *_unpack(meta))
        if columns.count != (columns.count if expected is None else expected):
            raise ValueError(f"it holds {columns.count} events where {expected} were stored")
        if any(some is not None and len(some) != columns.count for some in columns.beside()):
            raise ValueError("its columns are not of one length")
        return columns
    except _DAMAGE as error:
        is_newer = bool(body) and body[0] not in (_RAW, _ZSTD)
        raise CorruptChunk(f"a chunk of {len(body)} bytes cannot be decoded: {error}", is_newer=is_newer) from error


def size(body: bytes) -> int:
    """How large a chunk is when it is decoded; of one that cannot be, what it takes as it is."""
    try:
        claimed = zstandard.frame_content_size(body[1:19]) if body[0] == _ZSTD else -1
    except _DAMAGE:
        claimed = -1
    return claimed if 0 <= claimed <= _LARGEST else len(body)


def _texts(packed: msgspec.Raw) -> Texts | None:
    return None if memoryview(packed)[0] == _NIL else Texts(packed)


_NIL = 0xC0
_DAMAGE = (ValueError, IndexError, MemoryError, RecursionError, zstandard.ZstdError, msgspec.MsgspecError)


def _payload(body: bytes) -> bytes:
    codec = body[0]
    if codec == _ZSTD:
        frame = body[1:]
        if zstandard.frame_content_size(frame) > _LARGEST:
            raise ValueError("its size is damaged")
        return _codecs.decompressor.decompress(frame)
    if codec == _RAW:
        payload = body[5:]
        if zlib.crc32(payload) != int.from_bytes(body[1:5], "little"):
            raise ValueError("its checksum does not match")
        return payload
    raise ValueError(f"codec {codec} is not one that this version knows; is it older than the one that wrote it?")


class _Codecs(threading.local):
    """zstandard's contexts, which threads must not share."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
        self.decompressor = zstandard.ZstdDecompressor()


_codecs = _Codecs()
