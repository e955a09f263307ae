"""The relations that a view may read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp


@dataclass(frozen=True)
class ViewCatalog:
    """The queues, views, reference tables and named subqueries that a SELECT may refer to.

    A name that is neither a view, a reference table, a CTE nor a subquery is a queue.
    """

    #: The declared columns of queues by name; None if they are not known.
    queues: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    #: The columns of materialized views by name.
    views: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: The names of reference tables.
    references: frozenset[str] = frozenset()
    #: The SELECTs of CREATE VIEW statements by name in lower case.
    subqueries: Mapping[str, exp.Expr] = field(default_factory=dict)
