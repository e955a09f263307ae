"""The events that user-defined functions run over, with the failures so far."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from penstock.core import json
from penstock.engine.worker.json_columns import JsonColumnDecoder
from penstock.engine.worker.task_reports import EventFailure, EventRef
from penstock.stream.context import Context
from penstock.stream.steps import Retries

#: A number with fewer digits equals its float, and needs no second look.
_LONG_NUMBER = re.compile(rb"[0-9][0-9.]{15}")
_decoder = msgspec.json.Decoder(float_hook=Decimal)


def restore_digits(value: Any, line: bytes) -> Any:
    """Replace each float that the original event, a line of JSON, has in the same place by the number as written.

    Functions get numbers as floats, which keep 15 to 17 digits. An event that a filter passes, or that a function
    copies and extends, would lose the others, and exact sums would not be exact.
    """
    if _LONG_NUMBER.search(line) is None:
        return value
    try:
        original = _decoder.decode(line)
    except msgspec.ValidationError:
        original = json.decode_decimals(line)
    return _restore(value, original)


def _restore(value: Any, original: Any) -> Any:
    match value, original:
        case float(), Decimal():
            is_rounded = float(original) == value and Decimal(repr(value)) != original
            return original if is_rounded else value
        case dict(), dict():
            return {name: _restore(inner, original.get(name)) for name, inner in value.items()}
        case list(), list() if len(value) == len(original):
            return list(map(_restore, value, original))
    return value


@dataclass(slots=True)
class UdfItem:
    """A value that one function returned and the next one gets."""

    #: The index of the event that the value comes from.
    source: int
    value: Any


class DecodedItems(NamedTuple):
    """The values after the last function: as columns and as JSON, with the source of each."""

    table: pa.Table
    lines: list[bytes]
    sources: list[int]


@dataclass(slots=True)
class UdfBatch:
    """Events in the course of a run of functions. Functions refer to an event by its index, the source."""

    query_name: str
    items: list[UdfItem]
    event_ref: Callable[[int], EventRef]
    read_metadata: Callable[[int], dict[str, Any]]
    failures: list[EventFailure] = field(default_factory=list)
    #: Events that a filter dropped, by stage.
    dropped: Counter[str] = field(default_factory=Counter)
    metadata: dict[int, dict[str, Any]] = field(default_factory=dict)
    #: Decodes the original event again, for a retry of the first function; None after the first function.
    reload_event: Callable[[int], Any] | None = None
    #: The original event as JSON.
    read_line: Callable[[int], bytes] | None = None

    def context(self, stage: str, source: int, attempt: int = 0) -> Context:
        if source not in self.metadata:
            self.metadata[source] = self.read_metadata(source)
        return Context(self.query_name, stage, attempt, self.metadata[source])

    def add_failure(self, source: int, stage: str, error: BaseException, attempts: int) -> None:
        self.failures.append(EventFailure.from_exception(self.event_ref(source), stage, error, attempts))

    def drop_failed_events(self) -> None:
        """Drop all items of an event if one of them failed."""
        if self.failures:
            failed = {failure.event for failure in self.failures}
            self.items = [item for item in self.items if self.event_ref(item.source) not in failed]

    def needs_backups(self, retries: Retries) -> bool:
        """True if values must be copied for retries: the original events cannot be decoded again."""
        return retries.limit > 0 and self.reload_event is None

    def restore_value(self, item: UdfItem, backup: Any) -> None:
        """Undo the changes that a function made to a value before it raised."""
        if self.reload_event is not None:
            item.value = self.reload_event(item.source)
        elif backup is not None:
            item.value = copy_value(backup)

    def encode_items(self, stage: str) -> tuple[list[bytes], list[int]]:
        """Encode the values as lines of JSON, with their sources. A value that JSON cannot hold fails in the stage."""
        encoded: dict[int, bytes] = {}
        for item in self.items:
            try:
                value = (
                    item.value if self.read_line is None else restore_digits(item.value, self.read_line(item.source))
                )
                encoded[id(item)] = json.encode(value)
            except Exception as error:
                self.add_failure(item.source, stage, error, 1)
        self.drop_failed_events()
        return [encoded[id(item)] for item in self.items], [item.source for item in self.items]

    def decode_items(self, stage: str, decoder: JsonColumnDecoder) -> DecodedItems:
        """Decode the values into columns. A value that does not fit the types of the columns fails in the stage."""
        lines, sources = self.encode_items(stage)
        table, errors = decoder.decode(b"\n".join(lines), len(lines))
        if errors:
            failed = {sources[row] for row in errors}
            self.failures += [
                EventFailure(*self.event_ref(sources[row]), stage, f"the returned event does not fit: {error}")
                for row, error in errors.items()
            ]
            kept = [row for row, source in enumerate(sources) if source not in failed]
            table = table.take(pa.array(kept, pa.int64()))
            lines, sources = [lines[row] for row in kept], [sources[row] for row in kept]
        return DecodedItems(table, lines, sources)


def copy_value(value: Any) -> Any:
    """Copy a value; None if it cannot be copied."""
    try:
        return _copy(value)
    except Exception:
        return None


def _copy(value: Any) -> Any:
    """Copy a value; faster than deepcopy for JSON."""
    match value:
        case None | str() | int() | float():
            return value
        case dict() if type(value) is dict:
            return {name: _copy(inner) for name, inner in value.items()}
        case list() if type(value) is list:
            return [_copy(inner) for inner in value]
        case _:
            return deepcopy(value)
