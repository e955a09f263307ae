"""Checks the statements of views while they are written: parses and plans them, without Spark or a database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.errors import InvalidRequest
from penstock.engine.views.operator_graph import OperatorNode, operator_graph
from penstock.stream.definition import Definition
from penstock.stream.statements.statement_parser import DRAFT_VIEW, parse_application
from penstock.stream.views.row_key import visible_key
from penstock.stream.views.view_plan import output_columns

_MAX_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True)
class CheckedView:
    """A view that a statement would make."""

    name: str
    columns: tuple[str, ...]
    #: The columns that identify a row and are shown.
    key: tuple[str, ...]
    indexes: tuple[tuple[str, ...], ...]
    changes_queue: str | None
    operators: Sequence[OperatorNode]

    @property
    def is_draft(self) -> bool:
        """Whether it is a SELECT without a name."""
        return self.name == DRAFT_VIEW


@dataclass(frozen=True, slots=True)
class CheckedStatements:
    views: Sequence[CheckedView]
    #: The queues that are read, and that no statement creates.
    queues: Sequence[str]


def check_new_view(text: str) -> CheckedView:
    """Return the view that a stored statement creates.

    Raises:
        InvalidRequest: The statements cannot be planned, or they create no view, or several.
    """
    views = check_statements(text).views
    if len(views) != 1 or views[0].is_draft:
        raise InvalidRequest("create one view at a time, with CREATE MATERIALIZED VIEW name AS SELECT ...")
    return views[0]


def check_statements(text: str) -> CheckedStatements:
    """Return the views that statements make.

    Raises:
        InvalidRequest: A statement cannot be planned; the message has the position. Statements other than those of
            views are refused: a preview runs on this machine, and a function or a sink could do anything there.
    """
    if len(text) > _MAX_CHARACTERS:
        raise InvalidRequest(f"the statements have more than {_MAX_CHARACTERS:,} characters: check them with a file")
    application = parse_application(Definition, text, has_drafts=True, views_only=True)
    views = []
    written = set(application.queues)
    for name, view in application.views.items():
        sink = application.queries[name].stream.sink
        written |= {sink} if sink is not None else set()
        nodes = operator_graph(view.root)
        views.append(CheckedView(name, output_columns(view.root), visible_key(view.root), view.indexes, sink, nodes))
    sources = [queue for query in application.queries.values() for queue in query.stream.sources]
    return CheckedStatements(views, [queue for queue in dict.fromkeys(sources) if queue not in written])
