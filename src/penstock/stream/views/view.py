"""A materialized view: its operators, the streams that they read, and how its result is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from penstock.core.errors import InvalidOption, InvalidRequest
from penstock.core.option_checks import check_integer, check_number
from penstock.stream.views.view_plan import (
    Operator,
    ViewSource,
    first_lookup_of_joined_rows,
    has_expiring_state,
    output_columns,
    walk,
)

if TYPE_CHECKING:
    from penstock.stream.definition import Definition
    from penstock.stream.steps import ReferenceTable

_Stream = TypeVar("_Stream", bound="Definition")


@dataclass(frozen=True)
class OtherView:
    """A materialized view of the database that another one reads."""

    columns: tuple[str, ...]
    #: The queue of its changes.
    changes: str


#: Plans a view again. Some of its sources, by name, are other views and not queues.
Planner: TypeAlias = "Callable[[Mapping[str, OtherView]], tuple[Operator, Mapping[str, Definition]]]"


#: The column of the time of a row's last change.
UPDATED_AT = "updated_at"


@dataclass(frozen=True)
class MaterializedView:
    """A query whose result is kept up to date and never ends."""

    root: Operator
    #: The streams of events that the operators read, by the name of their source.
    inputs: Mapping[str, Definition]
    #: Column lists of additional indexes on the result.
    indexes: tuple[tuple[str, ...], ...] = ()
    #: The reference tables that the operators read, by name.
    references: Mapping[str, ReferenceTable] = field(default_factory=dict)
    #: The SELECT of a view that methods of a stream have made, for the next method.
    select: str = field(default="", compare=False)
    #: The name of the view, if it was given with the definition.
    name: str | None = field(default=None, compare=False)
    #: A definition does no I/O, and does not know the views of the database.
    planner: Planner | None = field(default=None, compare=False)
    #: Rows that events left in the state expire if their group has no change for so long; None: never.
    state_ttl_seconds: float | None = None
    #: The query stops before its state has more bytes; None: no limit.
    max_state_bytes: int | None = None

    def __post_init__(self) -> None:
        if UPDATED_AT in output_columns(self.root):
            raise InvalidRequest(
                f"{UPDATED_AT} is the time of a row's last change, which every view has: name the column otherwise"
            )
        if self.max_state_bytes is not None:
            check_integer("max_state_bytes", self.max_state_bytes, 1, 10**15)
        if self.state_ttl_seconds is None:
            return
        check_number("state_ttl_seconds", self.state_ttl_seconds, 1, 1e10)
        if not has_expiring_state(self.root):
            raise InvalidOption(
                "state_ttl_seconds has no effect on this view: none of its operators keeps rows of events. Leave it "
                "out, or set it for the view that this one reads",
                option="state_ttl_seconds",
            )
        table = first_lookup_of_joined_rows(self.root)
        if table is not None:
            raise InvalidOption(
                f"state_ttl_seconds lets rows of a join of events disappear, and the reference table {table} is read "
                "once for each row: join the events with it before they are joined with each other",
                option="state_ttl_seconds",
            )

    @property
    def queue_names(self) -> list[str]:
        """The names in FROM that are queues of this definition. They may be views of the database."""
        return [name for name in self.inputs if name not in self.source_views]

    @property
    def source_views(self) -> list[str]:
        """The names of other views that this one reads."""
        return source_views(self.root)


def read_other_views(stream: _Stream, views: Mapping[str, OtherView]) -> _Stream:
    """Return the stream with a view that reads some of its sources as views, and not as queues."""
    view = stream.view
    assert view is not None  # noqa: S101 - the caller has found its sources
    assert view.planner is not None  # noqa: S101 - every view with sources has one
    root, inputs = view.planner(views)
    sources = tuple(dict.fromkeys(queue for each in inputs.values() for queue in each.sources))
    return replace(stream, sources=sources, view=replace(view, root=root, inputs=inputs))


def source_views(root: Operator) -> list[str]:
    """Return the names of the views that operators read, in order."""
    return list(dict.fromkeys(each.view for each in walk(root) if isinstance(each, ViewSource)))


def columns_read(root: Operator) -> dict[str, list[str]]:
    """Return the columns that operators read, by the view that has them."""
    read: dict[str, list[str]] = {}
    for source in (each for each in walk(root) if isinstance(each, ViewSource)):
        read.setdefault(source.view, []).extend(column.field for column in source.columns)
    return {view: list(dict.fromkeys(fields)) for view, fields in read.items()}
