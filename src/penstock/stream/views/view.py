"""A materialized view: its operators, the streams that they read, and how its result is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.stream.views.plan import Operator, ViewSource, walk

if TYPE_CHECKING:
    from penstock.stream.definition import Definition
    from penstock.stream.steps import ReferenceTable


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

    @property
    def source_views(self) -> list[str]:
        """The names of other views that this one reads."""
        return source_views(self.root)


def source_views(root: Operator) -> list[str]:
    """Return the names of the views that operators read, in order."""
    return list(dict.fromkeys(each.view for each in walk(root) if isinstance(each, ViewSource)))
