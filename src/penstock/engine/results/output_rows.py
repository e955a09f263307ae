"""The events that a cycle appends to a queue, as columns: a cycle can have very many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

#: Key and JSON.
OutputEvent: TypeAlias = tuple[str | None, bytes]


@dataclass(frozen=True)
class OutputRows:
    #: Texts; null for an event without a key.
    keys: pa.ChunkedArray
    #: JSON texts, each with a line end.
    lines: pa.ChunkedArray

    def __len__(self) -> int:
        return len(self.lines)

    @classmethod
    def of(cls, events: Sequence[OutputEvent]) -> OutputRows:
        keys = pa.chunked_array([[key for key, _ in events]], pa.string())
        return cls(keys, pa.chunked_array([[line + b"\n" for _, line in events]], pa.large_binary()))

    def to_events(self) -> list[OutputEvent]:
        return [(key, line[:-1]) for key, line in zip(self.keys.to_pylist(), self.lines.to_pylist(), strict=True)]


def to_lines(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """JSON texts as lines. All together may have more than the 2 GiB of a column of texts."""
    return pc.binary_join_element_wise(texts, "\n", "").cast(pa.large_binary())
