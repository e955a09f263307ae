"""The reader decodes events through user-defined functions: each event passes, is dropped, or fails by itself."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.cycle_plan import PartitionRange, SegmentRange
from penstock.engine.worker.chunk_slices import ChunkSlice
from penstock.engine.worker.event_decoder import EventDecoder
from penstock.engine.worker.read_config import ReadConfig
from penstock.engine.worker.task_reports import EventFailure, PartitionReport
from penstock.log.storage.chunk import ChunkColumns
from penstock.stream.steps import EnrichCall, FilterStep, FlatMapStep, ForeachStep, MapStep, Retries, Step

AT_ONCE = Retries(0, 0.0, 0.0)
FIELDS = pa.schema([("n", pa.int64()), ("amount", pa.decimal128(38, 18)), ("name", pa.string())])
#: What a function does with an event, and how many valid events come of it; None if the event fails.
FATES: dict[str, int | None] = {
    "keep": 1,
    "drop": 0,
    "raise": None,
    "number in text": None,
    "text": None,
    "object": None,
    "nan": None,
    "set": None,
    "deep": None,
}


class Unclear:
    def __bool__(self) -> bool:
        raise ValueError("neither true nor false")


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def change(event: dict[str, Any], fate: str) -> Any:
    match fate:
        case "raise":
            raise ValueError("bad luck")
        case "number in text":
            return {**event, "amount": "much"}
        case "text":
            return "text"
        case "object":
            return {**event, "name": {"first": "A"}}
        case "nan":
            return {**event, "amount": float("nan")}
        case "set":
            return {**event, "name": {1, 2}}
        case "deep":
            return {**event, "other": nested(5000)}
    return event


def map_event(index: int) -> Callable[[dict[str, Any]], Any]:
    def function(event: dict[str, Any]) -> Any:
        fate = event["fates"][index]
        return None if fate == "drop" else change(event, fate)

    return function


def flat_map_event(index: int) -> Callable[[dict[str, Any]], Any]:
    def function(event: dict[str, Any]) -> Any:
        fate = event["fates"][index]
        return [] if fate == "drop" else (value for value in (event, change(event, fate)))

    return function


def filter_event(index: int) -> Callable[[dict[str, Any]], Any]:
    def function(event: dict[str, Any]) -> Any:
        fate = event["fates"][index]
        return fate == "keep" if FATES[fate] is not None else Unclear()

    return function


def visit_event(index: int) -> Callable[[dict[str, Any]], Any]:
    def function(event: dict[str, Any]) -> Any:
        if FATES[event["fates"][index]] is None:
            raise LookupError("unknown")

    return function


def enrich_event(index: int) -> Callable[[dict[str, Any]], Any]:
    def function(event: dict[str, Any]) -> Any:
        return None if FATES[event["fates"][index]] is not None else "not a dict"

    return function


#: Each kind of step, whether it can drop an event, and how many events one that is kept becomes.
KINDS: dict[str, tuple[Callable[[int], Step], bool, int]] = {
    "map": (lambda index: MapStep(f"map {index}", map_event(index), None, AT_ONCE), True, 1),
    "flat_map": (lambda index: FlatMapStep(f"flat_map {index}", flat_map_event(index), None, AT_ONCE), True, 2),
    "filter": (lambda index: FilterStep(f"filter {index}", filter_event(index), AT_ONCE), True, 1),
    "foreach": (lambda index: ForeachStep(f"foreach {index}", visit_event(index), AT_ONCE), False, 1),
    "enrich": (lambda index: EnrichCall(f"enrich {index}", enrich_event(index), 4, None, AT_ONCE), False, 1),
}


def decode(steps: tuple[Step, ...], events: list[Any]) -> tuple[pa.Table, list[EventFailure], EventDecoder]:
    lines = [json.dumps(event).encode() for event in events]
    partition = PartitionRange(1, 1, 1, "", False, [SegmentRange(1, 0, len(lines))])
    config = ReadConfig("", 0, "q", FIELDS, {1: "orders"}, None, 0, steps, with_event_json=True)
    failures: list[EventFailure] = []
    decoder = EventDecoder(config, {1: PartitionReport(1, None)}, failures)
    piece = ChunkSlice(partition, 0, 0, False, ChunkColumns(b"\n".join(lines), len(lines)))
    return decoder.decode([piece]), failures, decoder


def expected_count(kinds: list[str], fates: list[str]) -> int | None:
    """How many events come of one; None if it fails."""
    count = 1
    for kind, fate in zip(kinds, fates, strict=True):
        _, can_drop, copies = KINDS[kind]
        if FATES[fate] is None:
            return None
        if fate == "drop" and can_drop:
            return 0
        count *= copies
    return count


@pytest.mark.parametrize("seed", range(200))
def test_random_functions_affect_only_their_event(seed: int) -> None:
    chance = random.Random(seed)
    kinds = chance.choices(list(KINDS), k=chance.randint(1, 3))
    fates = chance.choice([["drop"], ["raise"], ["text"], ["drop", "raise"], ["keep", "drop"], list(FATES)])
    events: list[dict[str, Any]] = [
        {"n": n, "amount": n, "name": "a", "fates": chance.choices(fates, k=len(kinds))}
        for n in range(chance.randint(1, 8))
    ]
    table, failures, decoder = decode(tuple(KINDS[kind][0](index) for index, kind in enumerate(kinds)), events)

    counts = [expected_count(kinds, event["fates"]) for event in events]
    assert table.column("n").to_pylist() == [n for n, count in enumerate(counts) for _ in range(count or 0)]
    assert table.column("__offset").to_pylist() == table.column("n").to_pylist()
    assert sorted({failure.offset for failure in failures}) == [n for n, count in enumerate(counts) if count is None]
    if kinds == ["filter"]:
        assert decoder.dropped["filter 0"] == counts.count(0)


@pytest.mark.parametrize("is_time_only", [True, False])
def test_integer_times_may_become_fractional_if_no_expression_reads_them(is_time_only: bool) -> None:
    times = [1_700_000_000, 1_700_000_000.25, 1_700_000_000_500, "soon", 1.5e9]
    lines = [json.dumps({"n": n, "ts": time}).encode() for n, time in enumerate(times)]
    fields = pa.schema([("n", pa.int64()), ("ts", pa.int64())])
    config = ReadConfig("", 0, "q", fields, {1: "orders"}, "ts", 0, (), False, is_time_only=is_time_only)
    failures: list[EventFailure] = []
    partition = PartitionRange(1, 1, 1, "", False, [SegmentRange(1, 0, len(lines))])
    piece = ChunkSlice(partition, 0, 0, False, ChunkColumns(b"\n".join(lines), len(lines)))
    table = EventDecoder(config, {1: PartitionReport(1, None)}, failures).decode([piece])

    whole, fractional = [1_700_000_000_000_000, 1_700_000_000_500_000], [1_700_000_000_250_000, 1_500_000_000_000_000]
    assert sorted(table.column("__time").to_pylist()) == sorted([*whole, *(fractional if is_time_only else [])])
    assert {failure.offset for failure in failures} == ({3} if is_time_only else {1, 3, 4})
