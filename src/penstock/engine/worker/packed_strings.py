"""Converts the packed strings of a chunk to an Arrow column, without a Python object for each string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.log.storage import chunk

#: Fewer strings are unpacked as fast one by one.
_MIN_STRINGS = 32
#: MessagePack puts one byte before a string of up to 31 bytes: this value plus the length.
_SHORT_STRING, _SHORT_STRING_LIMIT = 0xA0, 32

_Array = np.ndarray[Any, Any]


class _ShortStrings(NamedTuple):
    lengths: _Array
    characters: bytes


def decode_strings(packed: chunk.PackedStrings) -> Sequence[str | None] | pa.StringArray:
    """An Arrow column, or a list if there are only a few strings."""
    if len(packed) < _MIN_STRINGS:
        return packed.unpacked()
    strings = _split_short_strings(np.frombuffer(packed.items, np.uint8), len(packed))
    if strings is None:
        return pa.array(packed.unpacked(), pa.string())
    offsets = np.concatenate(([0], strings.lengths)).cumsum(dtype=np.int32)
    return pa.StringArray.from_buffers(len(packed), pa.py_buffer(offsets), pa.py_buffer(strings.characters))


def _split_short_strings(data: _Array, count: int) -> _ShortStrings | None:
    """Split short ASCII strings; None if others are among them. No ASCII character looks like a length byte."""
    length = len(data) // count - 1
    has_one_length = (
        len(data) == count * (length + 1)
        and length < _SHORT_STRING_LIMIT
        and (data[:: length + 1] == _SHORT_STRING + length).all()
    )
    if has_one_length:
        lengths, characters = np.full(count, length), data.reshape(count, length + 1)[:, 1:].tobytes()
    else:
        is_length = data >= _SHORT_STRING
        starts = np.flatnonzero(is_length)
        lengths = np.append(starts[1:], len(data)) - starts - 1
        if (
            len(starts) != count
            or starts[0]
            or (data[starts] != _SHORT_STRING + lengths).any()
            or lengths.max() >= _SHORT_STRING_LIMIT
        ):
            return None
        characters = data[~is_length].tobytes()
    return _ShortStrings(lengths, characters) if characters.isascii() else None
