"""Resolve ranges of offsets to the segment tables that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg

from penstock.db.pg_arrays import int_array
from penstock.db.statements import Statements
from penstock.engine.cycle_plan import SegmentRange

_sql = Statements("penstock.engine.planning", "segment_ranges.sql")


class OffsetRange(NamedTuple):
    """Offsets ``start`` to ``stop`` (exclusive) of a partition."""

    partition_id: int
    start: int
    stop: int
    #: Offsets below this one are in sealed segments, the others in the open segment.
    sealed_end: int
    open_segment: int


def resolve_segments(conn: psycopg.Connection[Any], ranges: Sequence[OffsetRange]) -> dict[int, list[SegmentRange]]:
    """Return the segment ranges of each partition, in order. Offsets that retention dropped are missing."""
    resolved: dict[int, list[SegmentRange]] = {each.partition_id: [] for each in ranges}
    sealed = {each.partition_id: each for each in ranges if each.start < each.sealed_end}
    if sealed:
        params = {
            "partitions": int_array(sealed),
            "starts": int_array(each.start for each in sealed.values()),
            "stops": int_array(each.stop for each in sealed.values()),
        }
        for partition_id, segment, first, end in conn.execute(_sql["sealed_segments"], params):
            wanted = sealed[partition_id]
            # A segment sealed since the caller looked is still addressed as the open segment, by the same name.
            start, stop = max(wanted.start, first), min(wanted.stop, wanted.sealed_end, end)
            if start < stop:
                resolved[partition_id].append(SegmentRange(segment, start, stop))
    for each in ranges:
        if each.stop > each.sealed_end:
            start = max(each.start, each.sealed_end)
            resolved[each.partition_id].append(SegmentRange(each.open_segment, start, each.stop))
    return resolved
