"""A file of statements: its queues, reference tables, functions, queries and sinks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.stream.definition import Definition
    from penstock.stream.steps import ReferenceTable, SqlFunction
    from penstock.stream.views.view import MaterializedView


@dataclass(frozen=True)
class QueueStatement:
    """``CREATE QUEUE``: a queue that is created if it does not exist."""

    name: str
    #: The declared types of its fields.
    schema: dict[str, str]
    options: dict[str, Any]
    partitioning: str | None = None
    partitions: int | None = None
    #: Whether its events have more fields than the declared ones.
    has_more_fields: bool = False


@dataclass(frozen=True)
class SinkStatement:
    """``CREATE SINK``: a sink on a queue. ``to`` is the text that ``penstock sink run --to`` takes."""

    name: str
    queue: str
    to: str
    options: dict[str, Any]
    #: The position of the statement, for errors.
    position: str


@dataclass(frozen=True)
class QueryStatement:
    """``INSERT INTO`` or ``CREATE QUERY``: a stream and the options of its query."""

    name: str
    stream: Definition
    options: dict[str, Any]


@dataclass
class Application:
    """The statements of a file, by name."""

    queues: dict[str, QueueStatement] = field(default_factory=dict)
    references: dict[str, ReferenceTable] = field(default_factory=dict)
    #: Python functions by name in lower case.
    functions: dict[str, SqlFunction] = field(default_factory=dict)
    queries: dict[str, QueryStatement] = field(default_factory=dict)
    sinks: dict[str, SinkStatement] = field(default_factory=dict)

    @property
    def views(self) -> dict[str, MaterializedView]:
        """The materialized views by the names of their queries."""
        views = {name: query.stream.view for name, query in self.queries.items()}
        return {name: view for name, view in views.items() if view is not None}

    def queries_in_order(self) -> list[QueryStatement]:
        """Return the queries, each after those that write a queue it reads. Cycles are in the order of the file."""
        left, ordered = list(self.queries.values()), list[QueryStatement]()
        while left:
            unwritten = {query.stream.sink for query in left}
            ready = [query for query in left if not unwritten & set(query.stream.sources)] or left[:1]
            ordered += ready
            left = [query for query in left if query not in ready]
        return ordered
