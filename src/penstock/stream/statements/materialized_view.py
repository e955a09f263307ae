"""Compiles ``CREATE MATERIALIZED VIEW`` to a stream whose result is kept up to date."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlglot import Token, exp

from penstock.core.names import check_name
from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.statements.application import Application
from penstock.stream.views.select.planner import plan_select
from penstock.stream.views.view import MaterializedView, OtherView, source_views
from penstock.stream.views.view_catalog import ViewCatalog
from penstock.stream.views.view_dialect import ViewSql
from penstock.stream.views.view_plan import Operator, QueueSource, ReferenceSource, output_columns, walk

if TYPE_CHECKING:
    from penstock.stream.definition import Definition

#: The options of a view that are part of its definition.
VIEW_OPTIONS = ("changes", "indexes", "state_ttl_seconds", "max_state_bytes")


@dataclass(frozen=True)
class ViewStatementCompiler:
    """Compiles the SELECT of a view."""

    source: SqlSource
    application: Application
    #: The tokens of the SELECTs of ``CREATE VIEW`` by name in lower case.
    subqueries: Mapping[str, list[Token]]
    #: The class of the streams.
    kind: type[Definition]

    def compile(self, name: str, tokens: list[Token], options: dict[str, Any]) -> Definition:
        """Compile the tokens of a SELECT. ``options`` has the options of VIEW_OPTIONS that were given."""
        source = SqlSource(self.source.text, self.source.name, ViewSql)
        catalog = ViewCatalog(
            queues={
                name: None if queue.has_more_fields or not queue.schema else tuple(queue.schema)
                for name, queue in self.application.queues.items()
            },
            views={name: output_columns(view.root) for name, view in self.application.views.items()},
            references=frozenset(self.application.references),
            subqueries={name: source.parse(given) for name, given in self.subqueries.items()},
        )
        query = source.parse(tokens)
        planner = partial(self._plan, source, query, catalog)
        root, inputs = planner({})
        queues = [queue for stream in inputs.values() for queue in stream.sources]
        view = MaterializedView(
            root,
            inputs,
            self._parse_indexes(query, options.get("indexes"), output_columns(root)),
            {table: self.application.references[table] for table in reference_names(root)},
            name=name,
            state_ttl_seconds=options.get("state_ttl_seconds"),
            max_state_bytes=options.get("max_state_bytes"),
            planner=planner,
        )
        changes = options.get("changes")
        sink = None if changes is None else check_name(changes, "queue")
        return self.kind(tuple(dict.fromkeys(queues)), view=view, sink=sink)

    def _plan(
        self, source: SqlSource, query: exp.Expr, catalog: ViewCatalog, others: Mapping[str, OtherView]
    ) -> tuple[Operator, dict[str, Definition]]:
        """Return the operators of a SELECT and the streams that they read. ``others`` are views of the database."""
        columns = {name: other.columns for name, other in others.items()}
        root = plan_select(source, query, replace(catalog, views={**catalog.views, **columns}))
        inputs = {name: self._input(name) for name in source_names(root)}
        for name in source_views(root):
            inputs[name] = self.kind.from_(others[name].changes) if name in others else self._changes_of(name)
        return root, inputs

    def _input(self, name: str) -> Definition:
        queue = self.application.queues.get(name)
        return self.kind.from_(name, schema=None if queue is None or not queue.schema else queue.schema)

    def _changes_of(self, name: str) -> Definition:
        """Return the stream of another view's changes. The view writes them to a queue from now on."""
        statement = self.application.queries[name]
        sink = statement.stream.sink or f"{name}.changes"
        changed = replace(statement, stream=replace(statement.stream, sink=sink))
        self.application.queries[name] = changed
        return self.kind.from_(sink)

    def _parse_indexes(self, query: exp.Expr, text: object, columns: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        """Parse ``'total; country, city'``: the columns of each index, separated by semicolons."""
        if text is None:
            return ()
        if not isinstance(text, str):
            raise self.source.error(query, "indexes is a text with the columns of each index: 'total; country, city'")
        indexes = [tuple(name.strip() for name in part.split(",")) for part in text.split(";")]
        for name in (name for index in indexes for name in index):
            if name not in columns:
                raise self.source.error(query, f"there is no column {name!r} to index; there are {', '.join(columns)}")
        return tuple(indexes)


def reference_names(root: Operator) -> list[str]:
    """Return the names of the reference tables that the operators read, in order."""
    return list(dict.fromkeys(each.table for each in walk(root) if isinstance(each, ReferenceSource)))


def source_names(root: Operator) -> list[str]:
    """Return the names of the queues that the operators read, in order."""
    return list(dict.fromkeys(each.queue for each in walk(root) if isinstance(each, QueueSource)))
