"""What every event of a push carries beside its own headers: where its trace began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from penstock.log.write.encode import Piece


def stamped(parts: Sequence[Sequence[Piece]], stamp: Mapping[str, str]) -> list[list[Piece]]:
    """The same events with these headers; what an event says itself wins."""
    return [[_stamped(piece, stamp) for piece in part] for part in parts]


def _stamped(piece: Piece, stamp: Mapping[str, str]) -> Piece:
    own = piece.columns.headers or [None] * piece.columns.count
    headers = [{**stamp, **(each or {})} for each in own]
    return replace(piece, columns=replace(piece.columns, headers=headers))
