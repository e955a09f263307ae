"""The stored format of a chunk: consecutive events of a partition in one row of a chunks table.

A chunk is columnar. It holds the events' data as NDJSON, so that a reader can pass it to a JSON parser unchanged, and
beside it the columns that some events have (keys, ids, times, headers). The first byte names the codec. Every codec
has a checksum. The chunks of a queue with ``encrypted`` are encrypted after their compression. Those of a queue with
``readable_from_sql`` are not compressed and have the other columns as two lines of JSON, which SQL can read.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import overload

import msgspec
import zstandard

from penstock.core import encryption
from penstock.core.errors import CorruptChunk

#: The most events in a chunk. Readers rely on it to bound an index range.
MAX_EVENTS = 4096
#: A chunk is closed when its data reaches this size.
TARGET_BYTES = 1 << 20

_RAW = 0
_ZSTD = 1
_JSON = 2
#: The size of the payload in four bytes, then another chunk, encrypted. No single bit makes it another codec.
_ENCRYPTED = 0xE6
_ENCRYPTED_HEAD = 5
#: Smaller payloads are not compressed.
_MIN_COMPRESSED_BYTES = 256
_COMPRESSION_LEVEL = 1
#: More than any chunk has. A frame that claims more is damaged, and is not allocated.
_MAX_PAYLOAD_BYTES = 1 << 28
#: The MessagePack encoding of None.
_NIL = 0xC0
_DECODE_ERRORS = (ValueError, IndexError, MemoryError, RecursionError, zstandard.ZstdError, msgspec.MsgspecError)


def _encode_str_subclass(value: object) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"a chunk cannot hold a {type(value).__name__}")


_pack = msgspec.msgpack.Encoder(enc_hook=_encode_str_subclass).encode
_unpack = msgspec.msgpack.Decoder(
    tuple[
        int,
        list[str | None] | None,
        list[str | None] | None,
        list[int | None] | None,
        list[dict[str, str] | None] | None,
    ]
).decode
_read_json = msgspec.json.Decoder(
    tuple[int, list[str | None] | None, list[str | None] | None, list[int | None] | None]
).decode
_read_json_headers = msgspec.json.Decoder(list[dict[str, str] | None] | None).decode
_write_json = msgspec.json.Encoder(enc_hook=_encode_str_subclass).encode
_unpack_lazily = msgspec.msgpack.Decoder(
    tuple[int, msgspec.Raw, msgspec.Raw, list[int | None] | None, list[dict[str, str] | None] | None]
).decode
_unpack_strings = msgspec.msgpack.Decoder(list[str | None]).decode


class PackedStrings(Sequence[str | None]):
    """A column of strings that is decoded on first access. Some readers parse the packed form instead."""

    __slots__ = ("_count", "_packed", "_strings", "items")

    def __init__(self, packed: msgspec.Raw) -> None:
        self._packed = packed
        self._strings: list[str | None] | None = None
        data = memoryview(packed)
        match data[0]:
            case head if head & 0xF0 == 0x90:
                self._count, start = head & 0x0F, 1
            case 0xDC | 0xDD as head:
                start = 3 if head == 0xDC else 5
                self._count = int.from_bytes(data[1:start], "big")
            case head:
                raise ValueError(f"a column of strings begins with byte {head}")
        #: The packed strings, each with its length in front.
        self.items = data[start:]

    def unpacked(self) -> list[str | None]:
        """Return the strings, or raise CorruptChunk if they cannot be decoded."""
        if self._strings is None:
            try:
                self._strings = _unpack_strings(self._packed)
            except msgspec.MsgspecError as error:
                raise CorruptChunk(f"a column of {self._count} strings cannot be decoded: {error}") from error
        return self._strings

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str | None]:
        return iter(self.unpacked())

    @overload
    def __getitem__(self, index: int) -> str | None: ...
    @overload
    def __getitem__(self, index: slice) -> list[str | None]: ...
    def __getitem__(self, index: int | slice) -> str | list[str | None] | None:
        return self.unpacked()[index]


class ChunkColumns(msgspec.Struct, frozen=True, gc=False):
    """The events of one chunk, column by column. A column that no event uses is None."""

    #: The events' data as NDJSON.
    data: bytes
    count: int
    keys: Sequence[str | None] | None = None
    ids: Sequence[str | None] | None = None
    #: Microseconds since 1970.
    times: Sequence[int | None] | None = None
    headers: Sequence[dict[str, str] | None] | None = None

    def lines(self) -> list[bytes]:
        return self.data.split(b"\n")


class StoredChunk:
    """A decoded chunk with its position in the partition."""

    __slots__ = ("appended_at", "columns", "end", "first", "lines", "target_group")

    def __init__(
        self, end_offset: int, count: int, appended_at: datetime, target_group: int | None, body: bytes
    ) -> None:
        self.columns = decode(body, count)
        self.lines = self.columns.lines()
        self.end = end_offset
        self.first = end_offset - self.columns.count
        self.appended_at = appended_at
        self.target_group = target_group

    @classmethod
    def of(
        cls,
        columns: ChunkColumns,
        lines: list[bytes],
        first: int,
        appended_at: datetime,
        target_group: int | None = None,
    ) -> StoredChunk:
        """Create a chunk from events that are decoded already. ``lines`` holds their data."""
        stored = cls.__new__(cls)
        stored.columns, stored.lines = columns, lines
        stored.first, stored.end = first, first + columns.count
        stored.appended_at, stored.target_group = appended_at, target_group
        return stored


def encode(columns: ChunkColumns, *, encrypted: bool = False, readable: bool = False) -> bytes:
    """Encode a chunk. ``readable``: so that SQL can read it (``penstock.read_chunk``)."""
    if readable:
        meta = _write_json((columns.count, columns.keys, columns.ids, columns.times))
        payload = b"%b\n%b\n%b" % (meta, _write_json(columns.headers), columns.data)
        return b"%c%b%b" % (_JSON, zlib.crc32(payload).to_bytes(4, "little"), payload)
    meta = _pack((columns.count, columns.keys, columns.ids, columns.times, columns.headers))
    payload = b"".join((len(meta).to_bytes(4, "little"), meta, columns.data))
    if len(payload) < _MIN_COMPRESSED_BYTES:
        body = b"%c%b%b" % (_RAW, zlib.crc32(payload).to_bytes(4, "little"), payload)
    else:
        body = b"%c%b" % (_ZSTD, _codecs.compressor.compress(payload))
    return encryption.encrypt(body, b"%c%b" % (_ENCRYPTED, len(payload).to_bytes(4, "little"))) if encrypted else body


def decode(body: bytes, expected: int | None = None, *, lazily: bool = False) -> ChunkColumns:
    """Decode a chunk, or raise CorruptChunk, or ConfigurationError without the key of an encrypted one.

    Args:
        body: The stored form.
        expected: The number of events that the chunk must have.
        lazily: Return keys and ids as :class:`PackedStrings`.
    """
    try:
        payload = _read_payload(body)
        size = int.from_bytes(payload[:4], "little")
        meta = payload[4 : 4 + size]
        if body[0] == _JSON:
            columns = _read_json_chunk(payload, lazily=lazily)
        elif lazily:
            count, keys, ids, times, headers = _unpack_lazily(meta)
            columns = ChunkColumns(
                payload[4 + size :], count, _packed_strings(keys), _packed_strings(ids), times, headers
            )
        else:
            columns = ChunkColumns(payload[4 + size :], *_unpack(meta))
        if columns.count != (columns.count if expected is None else expected):
            raise ValueError(f"it holds {columns.count} events where {expected} were stored")
        optional = columns.keys, columns.ids, columns.times, columns.headers
        if any(column is not None and len(column) != columns.count for column in optional):
            raise ValueError("its columns are not of one length")
        return columns
    except _DECODE_ERRORS as error:
        is_newer = bool(body) and body[0] not in (_RAW, _ZSTD, _JSON, _ENCRYPTED)
        raise CorruptChunk(f"a chunk of {len(body)} bytes cannot be decoded: {error}", is_newer=is_newer) from error


def decoded_size(body: bytes) -> int:
    """Return the size of a chunk after decompression, or its stored size if that is unknown."""
    try:
        if body[0] == _ENCRYPTED:
            claimed = int.from_bytes(body[1:_ENCRYPTED_HEAD], "little")
        else:
            claimed = zstandard.frame_content_size(body[1:19]) if body[0] == _ZSTD else -1
    except _DECODE_ERRORS:
        claimed = -1
    return claimed if 0 <= claimed <= _MAX_PAYLOAD_BYTES else len(body)


def _read_json_chunk(payload: bytes, *, lazily: bool) -> ChunkColumns:
    meta, header_line, data = payload.split(b"\n", 2)
    count, keys, ids, times = _read_json(meta)
    headers = _read_json_headers(header_line)
    if lazily:
        packed_keys, packed_ids = (_packed_strings(msgspec.Raw(_pack(column))) for column in (keys, ids))
        return ChunkColumns(data, count, packed_keys, packed_ids, times, headers)
    return ChunkColumns(data, count, keys, ids, times, headers)


def _packed_strings(packed: msgspec.Raw) -> PackedStrings | None:
    return None if memoryview(packed)[0] == _NIL else PackedStrings(packed)


def _read_payload(body: bytes) -> bytes:
    codec = body[0]
    if codec == _ZSTD:
        frame = body[1:]
        if zstandard.frame_content_size(frame) > _MAX_PAYLOAD_BYTES:
            raise ValueError("its size is damaged")
        return _codecs.decompressor.decompress(frame)
    if codec in (_RAW, _JSON):
        payload = body[5:]
        if zlib.crc32(payload) != int.from_bytes(body[1:5], "little"):
            raise ValueError("its checksum does not match")
        return payload
    if codec == _ENCRYPTED:
        return _read_payload(encryption.decrypt(body, _ENCRYPTED_HEAD))
    raise ValueError(f"codec {codec} is unknown to this version; a newer version may have written it")


class _Codecs(threading.local):
    """Compression contexts of zstandard. Threads must not share them."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL, write_checksum=True)
        self.decompressor = zstandard.ZstdDecompressor()


_codecs = _Codecs()
