"""The steps of a stream, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.stream.expression import Expression, is_python
from penstock.stream.sql.select_rules import passes_all


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a callable is called again for an event that it raised for, and after which pauses."""

    limit: int = 3
    #: The pause before the n-th retry is n times this.
    pause_seconds: float = 0.1
    #: A call that takes longer is given up, and its event with it. Zero: never.
    timeout_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Map:
    """Each event becomes another: a select list, or a function whose answer is an event, several, or None."""

    name: str
    expression: Expression
    #: The types of the fields that a function's answer has, as Spark spells them; inferred where nothing is said.
    returns: Mapping[str, str] | None = None
    retries: Retries = field(default_factory=Retries)


@dataclass(frozen=True, slots=True)
class Filter:
    """Events for which the condition holds go on."""

    name: str
    condition: Expression
    retries: Retries = field(default_factory=Retries)


@dataclass(frozen=True, slots=True)
class FlatMap:
    """Each event becomes any number of others: SQL text for an array, or a function that returns a list."""

    name: str
    expression: Expression
    returns: Mapping[str, str] | None = None
    retries: Retries = field(default_factory=Retries)


@dataclass(frozen=True, slots=True)
class Sql:
    """A SELECT over ``stream`` and named reference tables."""

    name: str
    query: str
    tables: Mapping[str, Table] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Table:
    """A reference table: a PostgreSQL table or query, or a Spark DataFrame (or a function that returns one)."""

    #: SQL for PostgreSQL, or None.
    query: str | None = None
    frame: Any = None
    refresh_seconds: float = 60.0
    #: A NOTIFY on this channel refreshes it at once.
    notify: str | None = None


@dataclass(frozen=True, slots=True)
class Lookup:
    """Fields of a reference table are added to each event that has the same values in ``on``."""

    name: str
    table: Table
    on: tuple[str, ...]
    #: "left": an event without a match goes on with nulls. "inner": it is left out.
    how: str = "left"


@dataclass(frozen=True, slots=True)
class Call:
    """Fields that an async (or plain) function answers with are added to each event, many calls at a time."""

    name: str
    function: Callable[..., Any]
    concurrency: int = 16
    returns: Mapping[str, str] | None = None
    retries: Retries = field(default_factory=Retries)


@dataclass(frozen=True, slots=True)
class Foreach:
    """A function is called for each event, at least once, and the event goes on as it is."""

    name: str
    function: Callable[..., Any]
    retries: Retries = field(default_factory=Retries)


Step: TypeAlias = Map | Filter | FlatMap | Sql | Lookup | Call | Foreach


def makes_columns(step: Step) -> bool:
    """Whether events become others, of the fields that the step names."""
    return isinstance(step, Map | FlatMap) or (isinstance(step, Sql) and not passes_all(step.query))


def runs_in_python(step: Step) -> bool:
    """Whether the step is a Python callable."""
    match step:
        case Map(expression=expression) | FlatMap(expression=expression):
            return is_python(expression)
        case Filter(condition=condition):
            return is_python(condition)
        case Call() | Foreach():
            return True
    return False
