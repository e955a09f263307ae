"""A SELECT, made the steps of a stream: where it reads, what it joins, which rows and which columns go on."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.core.errors import InvalidRequest, InvalidSql
from penstock.stream.sql.clauses import check_clauses, check_select
from penstock.stream.sql.group_by import NEEDS_WINDOW, Aggregating
from penstock.stream.sql.parser import Source, same_type
from penstock.stream.sql.resolve import OF_EVENTS, Fields, is_star, with_names
from penstock.stream.steps import Table

if TYPE_CHECKING:
    from penstock.stream.definition import Definition


@dataclass(frozen=True)
class Catalog:
    """What names stand for. A name that is not here is a queue."""

    #: Declared types of the fields of queues.
    queues: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: Queues whose events have more fields than those.
    open_queues: Collection[str] = ()
    references: Mapping[str, Table] = field(default_factory=dict)
    #: Parsed SELECTs that are put in where they are named.
    views: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Relation:
    """Events that a part of a statement stands for."""

    stream: Definition
    #: Its columns, if they are known: what was selected, or what was declared.
    columns: tuple[str, ...] | None
    #: What it is called in the statement.
    alias: str
    #: Which field of the events each column is, None where it is computed; None: the columns are the fields.
    origins: Mapping[str, str | None] | None = None

    def origin(self, column: str) -> str | None:
        """The field that a column is, as the events have it."""
        return column if self.origins is None else self.origins.get(column)

    def fields(self, select: Any) -> Fields:
        """Its columns, for a SELECT that reads it."""
        tables = [join.this.alias or join.this.name for join in select.args.get("joins") or []]
        tables += [lateral.alias for lateral in select.args.get("laterals") or []]
        return Fields(self.alias.lower(), tuple(name.lower() for name in tables), self.columns, not tables)


@dataclass(frozen=True)
class Selecting:
    """Makes streams of the SELECTs of one source."""

    source: Source
    catalog: Catalog
    kind: type[Definition]

    def stream(self, select: Any, rules: dict[str, Any]) -> Definition:
        """The stream that a statement's SELECT stands for, but for where it goes."""
        select = self._checked(select)
        inner = Selecting(self.source, self._with_ctes(select), self.kind)
        try:
            if inner._aggregates(select):
                return inner._aggregated(select, rules)
            if rules and not _stream_join(select, inner.catalog):
                raise self.source.refuse(
                    select, f"{', '.join(rules)}: only for windows and for joins of streams; leave it out"
                )
            return inner._events(select, rules).stream
        except InvalidSql:
            raise
        except InvalidRequest as error:
            raise self.source.refuse(select, str(error)) from None

    # Parts of a SELECT

    def _checked(self, select: Any) -> Any:
        from sqlglot import exp

        if isinstance(select, exp.Subquery) and not select.alias:
            check_clauses(self.source, select)
            select = select.this
        if not isinstance(select, exp.Select | exp.SetOperation):
            raise self.source.refuse(select, "a stream is a SELECT: INSERT INTO totals SELECT ... FROM orders")
        check_select(self.source, select)
        return select

    def _with_ctes(self, select: Any) -> Catalog:
        found = dict(self.catalog.views)
        for cte in select.ctes:
            found[cte.alias.lower()] = cte.this
        return replace(self.catalog, views=found)

    def _aggregates(self, select: Any) -> bool:
        from sqlglot import exp

        if isinstance(select, exp.SetOperation):
            return False
        return bool(select.args.get("group") or select.args.get("having")) or any(
            item.find(exp.AggFunc) is not None for item in select.expressions
        )

    # Streams

    def _events(self, select: Any, rules: dict[str, Any] | None = None) -> Relation:
        """The events that a SELECT without groups gives."""
        from sqlglot import exp

        select = self._checked(select)
        if isinstance(select, exp.SetOperation):
            return self._union(select)
        inner = Selecting(self.source, self._with_ctes(select), self.kind)
        if inner._aggregates(select):
            raise self.source.refuse(
                select.args.get("group") or select,
                f"{NEEDS_WINDOW}. One statement has one such SELECT, and it is the outermost: send this one to a queue "
                "of its own, INSERT INTO counts SELECT ..., and read that",
            )
        if select.args.get("from_") is None:
            raise self.source.refuse(select, "the SELECT reads nothing: write FROM and the name of a queue")
        if _stream_join(select, inner.catalog):
            from penstock.stream.sql.join import joined

            return joined(inner, select, rules or {})
        base = inner._relation(select.args["from_"].this)
        if select.args.get("joins") or select.args.get("laterals"):
            named = with_names(self.source, select.expressions, base.fields(select))
            items = [spelled_item(self.source, item, inner.text(base, select)) for item in named]
            return inner._looked_up(select, base, items)
        made, text = base.stream, inner.text(base, select)
        if select.args.get("where"):
            made = made.filter(text(select.args["where"].this))
        if [type(item) for item in select.expressions] == [exp.Star] and not any(select.expressions[0].args.values()):
            return Relation(made, base.columns, base.alias, base.origins)
        columns: list[tuple[str, str]] = []
        for item in with_names(self.source, select.expressions, base.fields(select)):
            inside = item.unalias()
            if is_star(inside):
                if base.columns is None:
                    raise self.source.refuse(
                        item,
                        "which columns * stands for is not known: name them, or declare them with "
                        "CREATE QUEUE name (column type, ...)",
                    )
                left_out = self._left_out(item, base.columns)
                columns += [(name, f"`{name}`") for name in base.columns if name.lower() not in left_out]
            else:
                columns.append(spelled_item(self.source, item, text))
        names = [name for name, _ in columns]
        for name in names:
            if names.count(name) > 1:
                raise self.source.refuse(select, f"two columns are called {name!r}: name one with AS")
        made = made.map(", ".join(f"{what} AS `{name}`" for name, what in columns))
        origins = {name: base.origin(what.replace("`", "")) if _is_name(what) else None for name, what in columns}
        return Relation(made, tuple(names), base.alias, origins)

    def _left_out(self, item: Any, columns: tuple[str, ...]) -> set[str]:
        """The columns of ``* EXCEPT (...)``, in lower case."""
        from sqlglot import exp

        star = item.find(exp.Star)
        for name in ("replace", "rename", "except_"):
            for part in star.args.get(name) or []:
                if name != "except_":
                    raise self.source.refuse(part, f"* {name.upper()}: name the columns instead")
                if part.name.lower() not in (column.lower() for column in columns):
                    raise self.source.refuse(
                        part, f"there is no column {part.name!r} to leave out; there are {', '.join(columns)}"
                    )
        return {part.name.lower() for part in star.args.get("except_") or []}

    def _aggregated(self, select: Any, rules: dict[str, Any]) -> Definition:
        from sqlglot import exp

        if select.args.get("from_") is None:
            raise self.source.refuse(select, "the SELECT reads nothing: write FROM and the name of a queue")
        if _stream_join(select, self.catalog):
            raise self.source.refuse(
                select.args["joins"][0],
                "a join of streams is not grouped in the same statement: INSERT INTO joined SELECT ... FROM a JOIN b "
                "..., and then SELECT ... FROM joined GROUP BY ... in a second one",
            )
        base = self._relation(select.args["from_"].this)
        if not (select.args.get("joins") or select.args.get("laterals")):
            text = self.text(base, select)
            made = base.stream
            if select.args.get("where"):
                made = made.filter(text(select.args["where"].this))
            return Aggregating(self.source, select, text, base.origin, base.fields(select)).stream(made, rules)
        # The columns that are used, under names of their own.
        spell = self.text(base, select)
        names: dict[str, str] = {}
        used = [*select.expressions, select.args.get("group"), select.args.get("having")]
        fields = base.fields(select)
        aliases = {item.alias: item.this for item in select.expressions if item.alias}
        for part in used:
            for column in [] if part is None else part.find_all(exp.Column):
                if isinstance(column.this, exp.Star):
                    continue
                if not column.table and column.name in aliases and not column.find_ancestor(exp.AggFunc):
                    # The name that it is given, unless there is such a field.
                    if not fields.has(column.name, aliases[column.name]):
                        continue
                elif column.name.lower() in ("window", "session_window") or column.table in {*aliases, "window"}:
                    continue
                spelt = spell(column)
                if spelt not in names and not spelt.startswith("__") and spelt != "timestamp_micros(__time)":
                    name = column.name
                    while name in names.values():
                        name = f"{name}_"
                    names[spelt] = name
        relation = self._looked_up(select, base, [(name, spelt) for spelt, name in names.items()])

        def text_of(node: Any) -> str:
            def change(part: Any) -> Any:
                if isinstance(part, exp.Column) and not isinstance(part.this, exp.Star):
                    return exp.Var(this=names.get(spell(part), spell(part)))
                return part

            return str(node.copy().transform(change).sql("spark"))

        return Aggregating(self.source, select, text_of, relation.origin, fields).stream(relation.stream, rules)

    def _relation(self, table: Any) -> Relation:
        """What stands after FROM."""
        from sqlglot import exp

        check_clauses(self.source, table)
        if isinstance(table, exp.Subquery):
            inner = self._inside(table.this)
            return replace(inner, alias=table.alias or inner.alias)
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            raise self.source.refuse(table, f"{table.sql('spark')} is no queue, view or subquery")
        name = table_name(table)
        alias = table.alias or table.name
        if name.lower() in self.catalog.views:
            view = self.catalog.views[name.lower()]
            rest = {key: value for key, value in self.catalog.views.items() if key != name.lower()}
            catalog = replace(self.catalog, views=rest)
            return replace(Selecting(self.source, catalog, self.kind)._inside(view), alias=alias)
        if name in self.catalog.references:
            raise self.source.refuse(
                table, f"{name} is a reference table, and does not flow: read a queue and join it with {name}"
            )
        schema = self.catalog.queues.get(name) or None
        columns = tuple(schema) if schema and name not in self.catalog.open_queues else None
        return Relation(self.kind.from_(name, schema=schema), columns, alias)

    def _inside(self, select: Any) -> Relation:
        """What a SELECT within another gives."""
        distribute = select.args.get("distribute")
        if distribute is not None:
            raise self.source.refuse(
                distribute, "DISTRIBUTE BY gives the results their key: write it at the end of the statement"
            )
        return self._events(select)

    def _union(self, union: Any) -> Relation:
        """``SELECT * FROM a UNION ALL SELECT * FROM b``: one stream that reads both."""
        from sqlglot import exp

        parts, pending, by_name = list[Relation](), [union], False
        while pending:
            node = pending.pop(0)
            if isinstance(node, exp.Union) and node.args.get("distinct") is False:
                by_name = by_name or bool(node.args.get("by_name"))
                pending = [node.this, node.expression, *pending]
            elif isinstance(node, exp.SetOperation):
                raise self.source.refuse(node, "streams are put together with UNION ALL: others would look at all rows")
            else:
                parts.append(self._inside(node))
        schema: dict[str, str] = {}
        for part in parts:
            for name, kind in part.stream.schema.items():
                if same_type(schema.setdefault(name, kind), kind):
                    continue
                raise self.source.refuse(
                    union,
                    f"{name} is {schema[name]} in one queue and {kind} in another: declare the same type in both, or "
                    f"INSERT INTO one queue SELECT CAST({name} AS ...) of each",
                )
            if part.stream.steps or part.stream.joined is not None:
                raise self.source.refuse(
                    union,
                    "UNION ALL takes queues as they are, SELECT * FROM a UNION ALL SELECT * FROM b: put it into "
                    "a subquery, and select from that; or INSERT both into one queue",
                )
        known = list(dict.fromkeys(part.columns for part in parts if part.columns is not None))
        if len(known) > 1 and not by_name:
            listed = " and ".join(f"({', '.join(columns)})" for columns in known)
            raise self.source.refuse(
                union,
                "UNION ALL puts columns together by their place, and these are not the same ones in the same order, "
                f"{listed}: write UNION ALL BY NAME, for events have fields with names",
            )
        sources = [queue for part in parts for queue in part.stream.sources]
        columns = tuple(schema) if all(part.columns is not None for part in parts) else None
        return Relation(self.kind.from_(*sources, schema=schema or None), columns, "")

    # Text

    def text(self, relation: Relation, select: Any) -> Callable[[Any], str]:
        """How expressions over a relation are spelt for Spark: without its name, or in a join with that of the step."""
        fields = relation.fields(select)
        return lambda node: self._spell(node, fields)

    def _spell(self, node: Any, fields: Fields) -> str:
        from sqlglot import exp

        def change(part: Any) -> Any:
            if isinstance(part, exp.Query):
                raise self.source.refuse(part, "a subquery inside an expression is not known: join the table instead")
            if not isinstance(part, exp.Column) or isinstance(part.this, exp.Star):
                return part
            spelled, table = fields.check(self.source, part), fields.table(part)
            parts = [p.copy() for p in fields.parts(part)]
            if len(parts) == 1 and parts[0].name.lower() in OF_EVENTS and table not in fields.tables:
                return exp.Var(this=OF_EVENTS[parts[0].name.lower()])
            if spelled is not None and spelled != parts[0].name:
                parts[0].set("this", spelled)
            if table and not fields.is_alone:
                parts = [exp.to_identifier("stream" if table == fields.stream else table), *parts]
            return exp.Var(this=".".join(p.sql("spark") for p in parts))

        return str(node.copy().transform(change).sql("spark"))

    # Reference tables

    def _looked_up(self, select: Any, base: Relation, items: list[tuple[str, str]]) -> Relation:
        """A SELECT over the events and reference tables, as a step."""
        spell = self.text(base, select)
        tables: dict[str, Any] = {}
        clauses = []
        for join in select.args.get("joins") or []:
            clauses.append(self._join_clause(join, spell, tables))
        for lateral in select.args.get("laterals") or []:
            clauses.append(spell(lateral))
        where = select.args.get("where")
        if where is not None:
            clauses.append(f"WHERE {spell(where.this)}")
        columns = ", ".join(f"{text} AS `{name}`" for name, text in items) or "1 AS `one`"
        query = f"SELECT {columns} FROM stream {' '.join(clauses)}"  # noqa: S608 - the user's own SQL
        origins = {
            name: base.origin(text.removeprefix("stream.").replace("`", ""))
            if _is_name(text) and (text.startswith("stream.") or "." not in text)
            else None
            for name, text in items
        }
        return Relation(base.stream.sql(query, **tables), tuple(name for name, _ in items), base.alias, origins)

    def _join_clause(self, join: Any, spell: Callable[[Any], str], tables: dict[str, Any]) -> str:
        from sqlglot import exp

        if not isinstance(join.this, exp.Table):
            raise self.source.refuse(
                join,
                "what is not a table is no part of a join: for each of several values write "
                "LATERAL VIEW explode(values) t AS value",
            )
        name = table_name(join.this)
        check_clauses(self.source, join.this)
        table = self.catalog.references.get(name)
        if table is None:
            raise self.source.refuse(join, f"{name} is no reference table: CREATE REFERENCE {name} FROM 'schema.table'")
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER") or join.args.get("method"):
            raise self.source.refuse(
                join,
                "events are joined with a reference table by JOIN or LEFT JOIN: a row of the table that no event "
                "asks for is no event",
            )
        alias = (join.this.alias or join.this.name).lower()
        tables[alias] = table
        if join.args.get("using"):
            condition = f"USING ({', '.join(column.sql('spark') for column in join.args['using'])})"
        elif join.args.get("on") is not None:
            condition = f"ON {spell(join.args['on'])}"
        else:
            raise self.source.refuse(join, f"say what {name} is joined on: JOIN {name} ON {name}.id = ...")
        return f"{'LEFT ' if side == 'LEFT' else ''}JOIN {alias} {condition}"


def table_name(table: Any) -> str:
    """A table's name with everything before its last dot, as queues and references are called."""
    return ".".join(part.name for part in table.parts)


def _is_name(text: str) -> bool:
    """Whether it is a column and nothing else."""
    return re.fullmatch(r"(\w+|`[^`]+`)(\.(\w+|`[^`]+`))*", text) is not None


def spelled_item(source: Source, item: Any, text: Callable[[Any], str]) -> tuple[str, str]:
    """The name and the text of a column that is selected."""
    from sqlglot import exp

    inside = item.unalias()
    if is_star(inside):
        raise source.refuse(item, "in a join name the columns that go on: * would have some of them twice")
    name = item.alias or (inside.name if isinstance(inside, exp.Column) else "")
    if not name:
        raise source.refuse(item, f"name the column: {item.sql('spark')} AS name")
    return name, text(inside)


def _stream_join(select: Any, catalog: Catalog) -> bool:
    """Whether it joins a stream with a stream."""
    from sqlglot import exp

    for join in select.args.get("joins") or []:
        if isinstance(join.this, exp.Subquery):
            return True
        if isinstance(join.this, exp.Table) and table_name(join.this) not in catalog.references:
            return True
    return False
