"""Compiles a SELECT to the steps of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.stream.sql.column_types import parse_type
from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.statements.application import Application
from penstock.stream.statements.group_by import NEEDS_WINDOW, GroupByCompiler
from penstock.stream.statements.group_windows import WINDOW_FUNCTIONS
from penstock.stream.statements.name_resolution import SYSTEM_COLUMNS, InputFields, expand_aliases, is_star
from penstock.stream.statements.relation import Relation, SelectedColumn, check_unique, select_item, table_name
from penstock.stream.statements.statement_clauses import check_clauses, check_select
from penstock.stream.statements.stream_join import compile_stream_join

if TYPE_CHECKING:
    from penstock.stream.definition import Definition

_NO_FROM = "the SELECT reads nothing: write FROM and the name of a queue"


@dataclass(frozen=True)
class SelectCompiler:
    source: SqlSource
    #: The queues and reference tables of earlier statements. Any other name is a queue without declared fields.
    application: Application
    #: SELECTs that replace their names, which are in lower case.
    views: Mapping[str, exp.Expr]
    kind: type[Definition]

    def compile(self, select: Any, rules: dict[str, Any]) -> Definition:
        """Return the stream of a statement's SELECT, without the queue of its results."""
        select = self._check(select)
        inner = self._with_ctes(select)
        with self.source.locate_errors(select):
            if _is_aggregation(select):
                return inner._compile_aggregation(select, rules)
            if rules and not inner.joins_streams(select):
                raise self.source.error(
                    select, f"{', '.join(rules)}: only for windows and for joins of streams; leave it out"
                )
            return inner._compile_events(select, rules).stream

    def joins_streams(self, select: exp.Select) -> bool:
        """Return whether a SELECT joins a stream with a stream."""
        return any(
            isinstance(join.this, exp.Subquery)
            or (isinstance(join.this, exp.Table) and table_name(join.this) not in self.application.references)
            for join in select.args.get("joins") or []
        )

    def relation(self, table: Any) -> Relation:
        """Return the events of a table or a subquery after FROM or JOIN."""
        check_clauses(self.source, table)
        if isinstance(table, exp.Subquery):
            inner = self._compile_subquery(table.this)
            return replace(inner, alias=table.alias or inner.alias)
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            raise self.source.error(table, f"{table.sql('spark')} is no queue, view or subquery")
        name = table_name(table)
        alias = table.alias or table.name
        if name.lower() in self.views:
            # A view does not see itself, so that a queue can have its name.
            others = {key: value for key, value in self.views.items() if key != name.lower()}
            compiler = replace(self, views=others)
            return replace(compiler._compile_subquery(self.views[name.lower()]), alias=alias)
        if name in self.application.views:
            raise self.source.error(
                table,
                f"{name} is a materialized view, whose rows change: read it with another CREATE MATERIALIZED VIEW, or "
                "read the queue of its changes, WITH (changes = 'queue')",
            )
        if name in self.application.references:
            raise self.source.error(
                table, f"{name} is a reference table and not a stream: read a queue and join it with {name}"
            )
        queue = self.application.queues.get(name)
        if queue is None or not queue.schema:
            return Relation(self.kind.from_(name), None, alias)
        columns = None if queue.has_more_fields else tuple(queue.schema)
        return Relation(self.kind.from_(name, schema=queue.schema), columns, alias)

    def _check(self, select: Any) -> Any:
        if isinstance(select, exp.Subquery) and not select.alias:
            check_clauses(self.source, select)
            select = select.this
        if not isinstance(select, exp.Select | exp.SetOperation):
            raise self.source.error(select, "a stream is a SELECT: INSERT INTO totals SELECT ... FROM orders")
        check_select(self.source, select)
        return select

    def _with_ctes(self, select: Any) -> SelectCompiler:
        return replace(self, views={**self.views, **{cte.alias.lower(): cte.this for cte in select.ctes}})

    def _compile_subquery(self, select: Any) -> Relation:
        distribute = select.args.get("distribute")
        if distribute is not None:
            raise self.source.error(
                distribute, "DISTRIBUTE BY gives the results their key: write it at the end of the statement"
            )
        return self._compile_events(select)

    def _compile_events(self, select: Any, rules: dict[str, Any] | None = None) -> Relation:
        select = self._check(select)
        if isinstance(select, exp.SetOperation):
            return self._compile_union(select)
        inner = self._with_ctes(select)
        if _is_aggregation(select):
            raise self.source.error(
                select.args.get("group") or select,
                f"{NEEDS_WINDOW}. One statement has one such SELECT, and it is the outermost: send this one to a queue "
                "of its own, INSERT INTO counts SELECT ..., and read that",
            )
        if select.args.get("from_") is None:
            raise self.source.error(select, _NO_FROM)
        if inner.joins_streams(select):
            return compile_stream_join(self.source, select, inner.relation, rules or {})
        base = inner.relation(select.args["from_"].this)
        fields = base.fields(self.source, select)
        if not fields.is_alone:
            items = expand_aliases(select.expressions, fields)
            return inner._join_references(
                select, base, [select_item(self.source, item, fields.resolve) for item in items]
            )
        stream = base.stream
        if select.args.get("where"):
            stream = stream.filter(fields.resolve(select.args["where"].this).sql("spark"))
        if [type(item) for item in select.expressions] == [exp.Star] and not any(select.expressions[0].args.values()):
            return replace(base, stream=stream)
        columns = []
        for item in expand_aliases(select.expressions, fields):
            if is_star(item.unalias()):
                columns += self._expand_star(item, base.columns)
            else:
                columns.append(select_item(self.source, item, fields.resolve))
        check_unique(self.source, select, columns)
        stream = stream.map(", ".join(column.to_sql() for column in columns))
        return base.project(columns, base.origin_of, stream)

    def _expand_star(self, item: Any, columns: tuple[str, ...] | None) -> list[SelectedColumn]:
        """Return the columns of ``*`` or ``* EXCEPT (...)``."""
        if columns is None:
            raise self.source.error(
                item,
                "the columns of * are not known: name them, or declare them with CREATE QUEUE name (column type, ...)",
            )
        star = item.find(exp.Star)
        for name in ("replace", "rename"):
            for part in star.args.get(name) or []:
                raise self.source.error(part, f"* {name.upper()}: name the columns instead")
        excluded = star.args.get("except_") or []
        for part in excluded:
            if part.name.lower() not in (column.lower() for column in columns):
                raise self.source.error(
                    part, f"there is no column {part.name!r} to exclude; there are {', '.join(columns)}"
                )
        names = {part.name.lower() for part in excluded}
        return [
            SelectedColumn(name, exp.column(exp.to_identifier(name, quoted=True)))
            for name in columns
            if name.lower() not in names
        ]

    def _compile_aggregation(self, select: exp.Select, rules: dict[str, Any]) -> Definition:
        if select.args.get("from_") is None:
            raise self.source.error(select, _NO_FROM)
        if self.joins_streams(select):
            raise self.source.error(
                select.args["joins"][0],
                "a join of streams is not grouped in the same statement: INSERT INTO joined SELECT ... FROM a JOIN b "
                "..., and then SELECT ... FROM joined GROUP BY ... in a second one",
            )
        base = self.relation(select.args["from_"].this)
        fields = base.fields(self.source, select)
        if not fields.is_alone:
            return self._compile_joined_aggregation(select, base, fields, rules)
        stream = base.stream
        if select.args.get("where"):
            stream = stream.filter(fields.resolve(select.args["where"].this).sql("spark"))
        return GroupByCompiler(self.source, select, fields.resolve, base.origin, fields).compile(stream, rules)

    def _compile_joined_aggregation(
        self, select: exp.Select, base: Relation, fields: InputFields, rules: dict[str, Any]
    ) -> Definition:
        """Compile a SELECT with groups over a join: the join returns the columns that the groups use."""
        names: dict[str, str] = {}
        columns: list[SelectedColumn] = []
        for column in _grouped_columns(select, fields):
            expression = fields.resolve(column)
            text = expression.sql("spark")
            if text in names or text.startswith("__") or expression == SYSTEM_COLUMNS["_time"]:
                continue
            name = column.name
            while name in names.values():
                name = f"{name}_"
            names[text] = name
            columns.append(SelectedColumn(name, expression))
        relation = self._join_references(select, base, columns)

        def resolve(expression: exp.Expr) -> exp.Expr:
            def change(node: exp.Expr) -> exp.Expr:
                if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
                    return node
                resolved = fields.resolve(node)
                name = names.get(resolved.sql("spark"))
                return resolved if name is None else exp.column(name)

            return expression.copy().transform(change)

        return GroupByCompiler(self.source, select, resolve, relation.origin, fields).compile(relation.stream, rules)

    def _compile_union(self, union: exp.SetOperation) -> Relation:
        """Compile ``SELECT * FROM a UNION ALL SELECT * FROM b`` to one stream that reads both queues."""
        parts, pending, by_name = list[Relation](), list[Any]([union]), False
        while pending:
            node = pending.pop(0)
            if isinstance(node, exp.Union) and node.args.get("distinct") is False:
                by_name = by_name or bool(node.args.get("by_name"))
                pending = [node.this, node.expression, *pending]
            elif isinstance(node, exp.SetOperation):
                raise self.source.error(node, "streams are combined with UNION ALL: others would need all rows")
            else:
                parts.append(self._compile_subquery(node))
        schema: dict[str, str] = {}
        for part in parts:
            for name, kind in part.stream.schema.items():
                if parse_type(schema.setdefault(name, kind)) != parse_type(kind):
                    raise self.source.error(
                        union,
                        f"{name} is {schema[name]} in one queue and {kind} in another: declare the same type in both, "
                        f"or INSERT INTO one queue SELECT CAST({name} AS ...) of each",
                    )
            if part.stream.steps or part.stream.joined is not None:
                raise self.source.error(
                    union,
                    "UNION ALL takes queues as they are, SELECT * FROM a UNION ALL SELECT * FROM b: put it into "
                    "a subquery, and select from that; or INSERT both into one queue",
                )
        known = list(dict.fromkeys(part.columns for part in parts if part.columns is not None))
        if len(known) > 1 and not by_name:
            listed = " and ".join(f"({', '.join(columns)})" for columns in known)
            raise self.source.error(
                union,
                "UNION ALL combines columns by position, and these are not the same ones in the same order, "
                f"{listed}: write UNION ALL BY NAME, for events have fields with names",
            )
        sources = [queue for part in parts for queue in part.stream.sources]
        columns = tuple(schema) if all(part.columns is not None for part in parts) else None
        return Relation(self.kind.from_(*sources, schema=schema or None), columns, "")

    def _join_references(self, select: exp.Select, base: Relation, columns: list[SelectedColumn]) -> Relation:
        """Compile a SELECT over the events and reference tables to a step."""
        fields = base.fields(self.source, select)
        tables: dict[str, Any] = {}
        joins = [self._reference_join(join, fields, tables) for join in select.args.get("joins") or []]
        laterals = [fields.resolve(lateral) for lateral in select.args.get("laterals") or []]
        items = ", ".join(column.to_sql() for column in columns) or "1 AS `one`"
        clauses = [clause.sql("spark").strip() for clause in (*joins, *laterals)]
        where = select.args.get("where")
        if where is not None:
            clauses.append(f"WHERE {fields.resolve(where.this).sql('spark')}")
        query = f"SELECT {items} FROM stream {' '.join(clauses)}"  # noqa: S608 - the user's own SQL
        stream = base.stream.sql(query, **tables)
        return base.project(columns, base.origin_in_join, stream)

    def _reference_join(self, join: Any, fields: InputFields, tables: dict[str, Any]) -> exp.Join:
        """Return the join with a reference table, which the step knows by its alias."""
        if not isinstance(join.this, exp.Table):
            raise self.source.error(
                join,
                "a join is with a table: for each of several values write LATERAL VIEW explode(values) t AS value",
            )
        name = table_name(join.this)
        check_clauses(self.source, join.this)
        table = self.application.references.get(name)
        if table is None:
            raise self.source.error(join, f"{name} is no reference table: CREATE REFERENCE {name} FROM 'schema.table'")
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER") or join.args.get("method"):
            raise self.source.error(
                join,
                "events are joined with a reference table by JOIN or LEFT JOIN: a row of the table without an event "
                "is no event",
            )
        alias = (join.this.alias or join.this.name).lower()
        tables[alias] = table
        using, on = join.args.get("using"), join.args.get("on")
        if not using and on is None:
            raise self.source.error(join, f"say what {name} is joined on: JOIN {name} ON {name}.id = ...")
        return exp.Join(
            this=exp.Table(this=exp.to_identifier(alias)),
            side=side or None,
            using=[column.copy() for column in using] if using else None,
            on=None if using else fields.resolve(on),
        )


def _is_aggregation(select: Any) -> bool:
    if isinstance(select, exp.SetOperation):
        return False
    return bool(select.args.get("group") or select.args.get("having")) or any(
        item.find(exp.AggFunc) is not None for item in select.expressions
    )


def _grouped_columns(select: exp.Select, fields: InputFields) -> list[exp.Column]:
    """Return the columns that the select list, GROUP BY and HAVING use, without aliases and names of the window."""
    aliases = {item.alias: item.this for item in select.expressions if item.alias}
    columns: list[exp.Column] = []
    for part in (*select.expressions, select.args.get("group"), select.args.get("having")):
        for column in [] if part is None else part.find_all(exp.Column):
            if isinstance(column.this, exp.Star):
                continue
            if not column.table and column.name in aliases and not column.find_ancestor(exp.AggFunc):
                is_used = bool(fields.has(column.name, aliases[column.name]))
            else:
                is_used = column.name.lower() not in WINDOW_FUNCTIONS and column.table not in {*aliases, "window"}
            if is_used:
                columns.append(column)
    return columns
