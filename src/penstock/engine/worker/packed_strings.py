"""Converts the packed strings of a chunk to an Arrow column, without a Python object for each string."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.log.storage import chunk

#: Fewer strings are unpacked as fast one by one.
_MIN_STRINGS = 32
#: MessagePack puts one byte before a string of up to 31 bytes: this value plus the length.
_SHORT_STRING, _SHORT_STRING_LIMIT = 0xA0, 32

_LENGTH_BYTES = bytes(range(_SHORT_STRING, 0x100))


def decode_strings(packed: chunk.PackedStrings) -> Sequence[str | None] | pa.StringArray:
    """An Arrow column, or a list if there are only a few strings."""
    if len(packed) < _MIN_STRINGS:
        return packed.unpacked()
    return _decode_short_strings(packed) or pa.array(packed.unpacked(), pa.string())


def _decode_short_strings(packed: chunk.PackedStrings) -> pa.StringArray | None:
    """Decode short ASCII strings; None if others are among them. No ASCII character looks like a length byte."""
    data = np.frombuffer(packed.items, np.uint8)
    starts = np.flatnonzero(data >= _SHORT_STRING)
    if len(starts) != len(packed) or starts[0]:
        return None
    lengths = np.diff(starts, append=len(data)) - 1
    characters = data.tobytes().translate(None, _LENGTH_BYTES)
    is_short = lengths.max() < _SHORT_STRING_LIMIT and (data[starts] == _SHORT_STRING + lengths).all()
    if not is_short or not characters.isascii():
        return None
    offsets = np.append(0, lengths).cumsum(dtype=np.int32)
    return pa.StringArray.from_buffers(len(packed), pa.py_buffer(offsets), pa.py_buffer(characters))
