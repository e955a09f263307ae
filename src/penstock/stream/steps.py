"""The steps of a stream, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.stream.expression import Expression, is_python


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a function is called again for an event for which it raised."""

    limit: int = 3
    #: The pause before the n-th retry is n times this.
    pause_seconds: float = 0.1
    #: A call that takes longer fails, and so does its event. Zero: no limit.
    timeout_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class MapStep:
    """Replaces each event: by a select list, or by a function that returns an event, a list of events, or None."""

    name: str
    expression: Expression
    #: The Spark types of the fields that a function returns. Others are inferred.
    returns: Mapping[str, str] | None = None
    retries: Retries = field(default_factory=Retries)


@dataclass(frozen=True, slots=True)
class FilterStep:
    """Passes the events for which a condition holds."""

    name: str
    condition: Expression
    retries: Retries = field(default_factory=Retries)


@dataclass(frozen=True, slots=True)
class FlatMapStep:
    """Replaces each event by any number of events: SQL for an array, or a function that returns a list."""

    name: str
    expression: Expression
    returns: Mapping[str, str] | None = None
    retries: Retries = field(default_factory=Retries)


@dataclass(frozen=True, slots=True)
class SqlStep:
    """A SELECT over ``stream`` and named reference tables."""

    name: str
    query: str
    tables: Mapping[str, ReferenceTable] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReferenceTable:
    """A table to join with: a PostgreSQL table or query, a Spark DataFrame, or a function that returns one."""

    #: SQL for PostgreSQL, or None.
    query: str | None = None
    frame: Any = None
    refresh_seconds: float = 60.0
    #: A NOTIFY on this channel refreshes the table at once.
    notify: str | None = None


@dataclass(frozen=True, slots=True)
class Lookup:
    """Adds the fields of a reference table to each event with the same values in ``on``."""

    name: str
    table: ReferenceTable
    on: tuple[str, ...]
    #: "left" passes an event without a match, with nulls. "inner" drops it.
    how: str = "left"


@dataclass(frozen=True, slots=True)
class EnrichCall:
    """Adds the fields that an async (or plain) function returns to each event, with concurrent calls."""

    name: str
    function: Callable[..., Any]
    concurrency: int = 16
    returns: Mapping[str, str] | None = None
    retries: Retries = field(default_factory=Retries)


@dataclass(frozen=True, slots=True)
class ForeachStep:
    """Calls a function for each event, at least once, and passes the event unchanged."""

    name: str
    function: Callable[..., Any]
    retries: Retries = field(default_factory=Retries)


@dataclass(frozen=True, slots=True)
class SqlFunction:
    """A Python function that the SQL of a statement calls for each row."""

    #: The name in SQL, in lower case.
    name: str
    function: Callable[..., Any]
    #: The Spark type of its result.
    returns: str


Step: TypeAlias = MapStep | FilterStep | FlatMapStep | SqlStep | Lookup | EnrichCall | ForeachStep


def makes_columns(step: Step) -> bool:
    """Return whether a step replaces events by others that have only the fields which the step names."""
    if not isinstance(step, SqlStep):
        return isinstance(step, MapStep | FlatMapStep)
    from penstock.stream.sql.select_step import selects_all_fields

    return not selects_all_fields(step.query)


def runs_in_python(step: Step) -> bool:
    match step:
        case MapStep(expression=expression) | FlatMapStep(expression=expression):
            return is_python(expression)
        case FilterStep(condition=condition):
            return is_python(condition)
        case EnrichCall() | ForeachStep():
            return True
    return False
