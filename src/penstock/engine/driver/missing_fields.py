"""Warns while a query runs of fields that it reads and that no recent event has."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from penstock.core.suggestions import describe_known
from penstock.engine.compile.schema.unknown_fields import field_names
from penstock.engine.cycle.query_setup import PreparedQuery
from penstock.engine.joins.join_reader import JoinReader
from penstock.engine.views.view_reader import ViewReader
from penstock.log.event import Event
from penstock.stream.definition import Definition

_logger = logging.getLogger("penstock.engine")

#: The seconds from the start to the first check, and between two checks.
_FIRST_SECONDS = 10.0
_INTERVAL_SECONDS = 60.0


class FieldsRead(NamedTuple):
    queues: Sequence[str]
    names: Collection[str]


def fields_read(stream: Definition, prepared: PreparedQuery) -> list[FieldsRead]:
    """The fields that a query reads from its queues, without declared ones, which events need not have.

    Functions at the start of a stream return other fields than those of the events, so nothing is known about these.
    """
    reader = prepared.reader
    if isinstance(reader, JoinReader | ViewReader):
        inputs = [(each.split.stream, each.read_config) for each in reader.inputs]
    else:
        inputs = [(stream, reader.config)]
    return [
        FieldsRead(list(config.queues.values()), set(config.fields.names) - set(definition.schema))
        for definition, config in inputs
        if not config.steps
    ]


class MissingFields:
    """Looks at the newest events from time to time, and warns of each missing field once."""

    def __init__(self, name: str, inputs: Sequence[FieldsRead], newest: Callable[[Sequence[str]], list[Event]]) -> None:
        self._name = name
        self._inputs = inputs
        self._newest = newest
        self._warned: set[str] = set()
        self._next_check = time.monotonic() + _FIRST_SECONDS

    def check_if_due(self) -> None:
        if time.monotonic() >= self._next_check:
            self._next_check = time.monotonic() + _INTERVAL_SECONDS
            self.check()

    def check(self) -> None:
        for queues, names in self._inputs:
            fields = field_names(event.raw for event in self._newest(queues)) if names else set()
            for name in sorted(set(names) - fields - self._warned if fields else ()):
                self._warned.add(name)
                _logger.warning(
                    "query %r: none of the newest events of %s has the field %r (%s); it is null in the results",
                    self._name,
                    ", ".join(map(repr, queues)),
                    name,
                    describe_known(name, fields),
                )
