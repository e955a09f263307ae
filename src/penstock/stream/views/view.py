"""A materialized view: its operators, the streams that they read, and how its result is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.core.errors import InvalidOption
from penstock.core.option_checks import check_integer, check_number
from penstock.stream.views.plan import Operator, ViewSource, has_expiring_state, walk

if TYPE_CHECKING:
    from penstock.stream.definition import Definition


@dataclass(frozen=True)
class MaterializedView:
    """A query whose result is kept up to date and never ends."""

    root: Operator
    #: The streams of events that the operators read, by the name of their source.
    inputs: Mapping[str, Definition]
    #: Column lists of additional indexes on the result.
    indexes: tuple[tuple[str, ...], ...] = ()
    #: The SELECT of a view that methods of a stream have made, for the next method.
    select: str = field(default="", compare=False)
    #: The name of the view, if it was given with the definition.
    name: str | None = field(default=None, compare=False)
    #: Rows that events left in the state expire if their group has no change for so long; None: never.
    state_ttl_seconds: float | None = None
    #: The query stops before its state has more bytes; None: no limit.
    max_state_bytes: int | None = None

    def __post_init__(self) -> None:
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

    @property
    def source_views(self) -> list[str]:
        """The names of other views that this one reads."""
        return source_views(self.root)


def source_views(root: Operator) -> list[str]:
    """Return the names of the views that operators read, in order."""
    return list(dict.fromkeys(each.view for each in walk(root) if isinstance(each, ViewSource)))
