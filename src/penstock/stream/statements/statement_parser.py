"""Parses statements and compiles them to queues, reference tables, queries and sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sqlglot import Token, exp

from penstock.core.errors import InvalidRequest, short_repr
from penstock.core.names import check_name
from penstock.core.option_checks import check_option_names
from penstock.log.queue_options import check_options, check_partitioning
from penstock.stream.reference_tables import reference_table
from penstock.stream.sql.dialect import StatementSql
from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.statements.application import Application, QueryStatement, QueueStatement, SinkStatement
from penstock.stream.statements.cursor import TokenCursor, split_statements
from penstock.stream.statements.functions import called_functions, load_function, sql_function
from penstock.stream.statements.materialized_view import VIEW_OPTIONS, ViewStatementCompiler
from penstock.stream.statements.relation import table_name
from penstock.stream.statements.select import SelectCompiler
from penstock.stream.statements.statement_clauses import check_clauses
from penstock.stream.views.view_dialect import ViewSql

if TYPE_CHECKING:
    from penstock.stream.definition import Definition
    from penstock.stream.steps import SqlFunction

_Stream = TypeVar("_Stream", bound="Definition")

_WINDOW_OPTIONS = ("grace_seconds", "allowed_lateness_seconds", "idle_flush_seconds", "late")
_RUN_OPTIONS = ("interval_seconds", "history_retention_seconds", "max_events_per_cycle", "key_name", "strict")
_REFERENCE_OPTIONS = ("refresh_seconds", "notify")
_COMMAND = (
    "it does not define anything, so it is not mixed with statements that do: run it by itself, `penstock sql "
    '"{} ..."`, or in a file of its own'
)
#: Statements that are not part of a definition, and what to do instead.
_INSTEAD = {
    "show": _COMMAND.format("SHOW"),
    "explain": _COMMAND.format("EXPLAIN"),
    "drop": _COMMAND.format("DROP"),
    "refresh": "a materialized view follows its events while its query runs: leave out REFRESH",
    "alter": "change the statement that creates it; a changed SELECT needs --rebuild",
}
_EXAMPLE = "INSERT INTO totals SELECT ... FROM orders"
_STATEMENTS = (
    "a statement is CREATE QUEUE, CREATE REFERENCE, CREATE FUNCTION, CREATE VIEW, CREATE MATERIALIZED VIEW, "
    "CREATE QUERY, CREATE SINK or INSERT INTO ... SELECT"
)


#: The first words after CREATE of statements that make views and the queues that they read.
_VIEW_STATEMENTS = ("queue", "view", "materialized")
_VIEWS_ONLY = (
    "only views are written here, with CREATE MATERIALIZED VIEW, CREATE VIEW, CREATE QUEUE or SELECT; run a file with "
    "other statements with `penstock sql`"
)
#: The name of a SELECT that stands by itself, while it is being written.
DRAFT_VIEW = "preview"


def parse_application(
    kind: type[Definition],
    text: str,
    name: str = "",
    functions: Mapping[str, Callable[..., Any]] | None = None,
    *,
    has_drafts: bool = False,
    views_only: bool = False,
) -> Application:
    """Parse a text of statements, without Spark and without a database.

    Args:
        kind: The class of the streams.
        text: The statements, separated by semicolons.
        name: The name of the file, for errors.
        functions: Python functions that the statements call, by name, with annotated results.
        has_drafts: A SELECT by itself is the materialized view DRAFT_VIEW.
        views_only: Refuse statements other than those that make views and queues.
    """
    parser = _StatementParser(kind, SqlSource(text, name, StatementSql), has_drafts, views_only)
    parser.add_functions(functions)
    return parser.parse()


def parse_statement(kind: type[Definition], source: SqlSource, tokens: list[Token]) -> QueryStatement | None:
    """Parse one statement of a query, or a SELECT by itself. Returns None for a statement that makes no query."""
    parser = _StatementParser(kind, source, has_drafts=True)
    queries = list(parser.parse([tokens]).queries.values())
    return queries[0] if queries else None


def stream_from_statement(
    kind: type[_Stream],
    statement: str,
    *,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    **tables: Any,
) -> _Stream:
    """Compile one statement: ``Stream.sql("INSERT INTO totals SELECT ...", customers="crm.customers")``."""
    given: object = statement
    if not isinstance(given, str):
        raise InvalidRequest(f"sql takes a statement in a text, such as {_EXAMPLE!r}, not {short_repr(given)}")
    parser = _StatementParser(kind, SqlSource(statement, dialect=StatementSql))
    parser.application.references.update({name: reference_table(given) for name, given in tables.items()})
    parser.add_functions(functions)
    queries = list(parser.parse().queries.values())
    if len(queries) != 1:
        raise InvalidRequest(f"give one statement, {_EXAMPLE} ...; a whole file is for `penstock sql`")
    return cast(_Stream, queries[0].stream)


class _StatementParser:
    def __init__(
        self, kind: type[Definition], source: SqlSource, has_drafts: bool = False, views_only: bool = False
    ) -> None:
        self.application = Application()
        self._kind = kind
        self._source = source
        self._has_drafts = has_drafts
        self._views_only = views_only
        #: The SELECTs of views by name in lower case.
        self._views: dict[str, exp.Expr] = {}
        #: Their tokens, which a materialized view parses in its own dialect.
        self._view_tokens: dict[str, list[Token]] = {}

    def add_functions(self, functions: Mapping[str, Callable[..., Any]] | None) -> None:
        for name, function in (functions or {}).items():
            self.application.functions[name.lower()] = sql_function(name, function)

    def parse(self, statements: list[list[Token]] | None = None) -> Application:
        for tokens in split_statements(self._source) if statements is None else statements:
            cursor = TokenCursor(self._source, tokens)
            with self._source.locate_errors(cursor.start):
                self._parse_statement(cursor)
        return self.application

    def _parse_statement(self, cursor: TokenCursor) -> None:
        first, second = cursor.word(), cursor.word(1)
        if self._has_drafts and first in ("select", "with"):
            return self._add_view(cursor, DRAFT_VIEW, {})
        if self._views_only and first == "insert":
            raise self._source.error(cursor.start, f"INSERT INTO: {_VIEWS_ONLY}")
        if first in ("insert", "select", "with"):
            return self._parse_query(cursor, None, {})
        if cursor.take("create"):
            is_replacement = cursor.take("or")
            if is_replacement:
                cursor.expect("replace")
            is_temporary = cursor.take("temporary") or cursor.take("temp")
            what = cursor.word()
            if self._views_only and what not in _VIEW_STATEMENTS:
                raise self._source.error(cursor.start, f"CREATE {what.upper()}: {_VIEWS_ONLY}")
            if what == "materialized" and not is_replacement and not is_temporary:
                cursor.take(what)
                cursor.expect("view")
                return self._create_materialized_view(cursor)
            if what == "view":
                cursor.take(what)
                return self._create_view(cursor, is_replacement)
            create = {
                "queue": self._create_queue,
                "reference": self._create_reference,
                "function": self._create_function,
                "query": self._create_query,
                "sink": self._create_sink,
            }.get(what)
            if create is not None and is_replacement:
                raise cursor.error(
                    f"only a view is replaced: leave out OR REPLACE. A {what} that exists is not changed"
                    if what in ("queue", "query")
                    else f"only a view is replaced: leave out OR REPLACE, and create the {what} once"
                )
            if create is not None and not is_temporary:
                cursor.take(what)
                return create(cursor)
            if what == "table":
                raise cursor.error(
                    "a table of PostgreSQL is created there; for one to join with write CREATE REFERENCE name FROM "
                    "'schema.table', for events CREATE QUEUE name (...)"
                )
        advice = _INSTEAD.get(first, _STATEMENTS)
        raise self._source.error(cursor.start, f"{first.upper()} {second.upper()}".strip() + f": {advice}")

    def _create_queue(self, cursor: TokenCursor) -> None:
        """``CREATE QUEUE [IF NOT EXISTS] name [(column type, ... [, *])] [WITH (option = value, ...)]``."""
        if cursor.take("if"):
            cursor.expect("not")
            cursor.expect("exists")
        name = check_name(cursor.name("a queue"), "queue")
        schema, has_more_fields = cursor.columns() if cursor.is_open_bracket() else ({}, False)
        options = cursor.options()
        cursor.expect_end()
        partitioning, partitions = options.pop("partitioning", None), options.pop("partitions", None)
        check_partitioning(partitioning or "hash", partitions)
        check_options(options)
        self._check_new(cursor, "queue", name, self.application.queues)
        self.application.queues[name] = QueueStatement(name, schema, options, partitioning, partitions, has_more_fields)

    def _create_reference(self, cursor: TokenCursor) -> None:
        """``CREATE REFERENCE name FROM 'schema.table' | AS SELECT ... [WITH (refresh_seconds = 60, notify = 'c')]``."""
        name = cursor.name("a reference table")
        if cursor.take("from"):
            table = cursor.string() if cursor.is_string() else cursor.name("a table")
            options = cursor.options()
            cursor.expect_end()
        else:
            options = cursor.options()
            cursor.expect("as")
            table = cursor.rest_of_text()
        check_option_names(options, _REFERENCE_OPTIONS, "reference table")
        self._check_new(cursor, "reference table", name, self.application.references)
        self.application.references[name] = reference_table(table, **options)

    def _create_function(self, cursor: TokenCursor) -> None:
        """``CREATE FUNCTION name [RETURNS type] AS 'module:function'``."""
        name = cursor.name("a function")
        returns = cursor.type() if cursor.take("returns") else None
        cursor.expect("as")
        reference = cursor.string()
        cursor.expect_end()
        self._check_new(cursor, "function", name.lower(), self.application.functions)
        self.application.functions[name.lower()] = sql_function(name, load_function(reference), returns)

    def _create_view(self, cursor: TokenCursor, is_replacement: bool) -> None:
        """``CREATE [OR REPLACE] VIEW name AS SELECT ...``: a query that replaces its name in later statements."""
        name = cursor.name("a view")
        cursor.expect("as")
        tokens = cursor.rest()
        select = self._source.parse(tokens)
        if not is_replacement:
            self._check_new(cursor, "view", name.lower(), self._views)
        self._views[name.lower()] = select
        self._view_tokens[name.lower()] = tokens

    def _create_materialized_view(self, cursor: TokenCursor) -> None:
        """``CREATE MATERIALIZED VIEW name [WITH (option = value, ...)] AS SELECT ...``."""
        name = cursor.name("a view")
        options = cursor.options()
        cursor.expect("as")
        self._add_view(cursor, name, options)

    def _add_view(self, cursor: TokenCursor, name: str, options: dict[str, Any]) -> None:
        view_options = {key: options.pop(key) for key in VIEW_OPTIONS if key in options}
        run_options = self._take_run_options(cursor.start, options, VIEW_OPTIONS)
        compiler = ViewStatementCompiler(self._source, self.application, self._view_tokens, self._kind)
        tokens = cursor.rest()
        stream = compiler.compile(name, tokens, view_options)
        select = SqlSource(self._source.text, self._source.name, ViewSql).parse(tokens)
        self._add_query(cursor.start, name, self._with_functions(stream, select), run_options)

    def _take_run_options(self, start: int, options: dict[str, Any], others: Sequence[str]) -> dict[str, Any]:
        """Remove the options of the run from those of a statement. Refuses what is left."""
        run_options = {key: options.pop(key) for key in _RUN_OPTIONS if key in options}
        if options:
            known = ", ".join((*others, *_RUN_OPTIONS))
            raise self._source.error(start, f"{next(iter(options))!r} is no option of a query; there are {known}")
        return run_options

    def _create_query(self, cursor: TokenCursor) -> None:
        """``CREATE QUERY name [WITH (option = value, ...)] AS [INSERT INTO queue] SELECT ...``."""
        name = cursor.name("a query")
        options = cursor.options()
        cursor.expect("as")
        self._parse_query(cursor, name, options)

    def _create_sink(self, cursor: TokenCursor) -> None:
        """``CREATE SINK name FROM queue TO 'file:out.jsonl' [WITH (every = 60)]``."""
        name = cursor.name("a sink")
        cursor.expect("from")
        queue = cursor.name("a queue")
        cursor.expect("to")
        to = cursor.string()
        options = cursor.options()
        cursor.expect_end()
        self._check_new(cursor, "sink", name, self.application.sinks)
        self.application.sinks[name] = SinkStatement(
            name, check_name(queue, "queue"), to, options, self._source.position(cursor.start)
        )

    def _parse_query(self, cursor: TokenCursor, name: str | None, options: dict[str, Any]) -> None:
        """``[INSERT INTO queue] SELECT ...``."""
        tokens = cursor.rest()
        start = tokens[0].start
        statement = self._source.parse(tokens)
        select, queue = statement, None
        if isinstance(statement, exp.Insert):
            queue, select = self._parse_insert(statement, start), statement.expression
            if isinstance(select, exp.Query) and statement.args.get("with_") is not None:
                select.set("with_", statement.args["with_"])
        if name is None and queue is None:
            raise self._source.error(
                start,
                "name the queue of its results, INSERT INTO totals SELECT ..., or the query, CREATE QUERY totals AS "
                "SELECT ..., for live rows alone",
            )
        rules = {key: options.pop(key) for key in _WINDOW_OPTIONS if key in options}
        run_options = self._take_run_options(start, options, _WINDOW_OPTIONS)
        stream = SelectCompiler(self._source, self.application, self._views, self._kind).compile(select, rules)
        stream = self._with_functions(self._with_sink(stream, select, queue), select)
        self._add_query(start, name or str(queue), stream, run_options)

    def _parse_insert(self, insert: exp.Insert, start: int) -> str:
        """Return the queue that a statement inserts into."""
        if not isinstance(insert.this, exp.Table):
            raise self._source.error(insert.this, "a queue has no columns to list: name those of the SELECT with AS")
        if insert.args.get("overwrite"):
            raise self._source.error(start, "events are appended to a queue: write INSERT INTO")
        check_clauses(self._source, insert)
        check_clauses(self._source, insert.this)
        return table_name(insert.this)

    def _with_sink(self, stream: Definition, select: Any, queue: str | None) -> Definition:
        """Return the stream with its queue, and with the key of DISTRIBUTE BY."""
        distribute = select.args.get("distribute")
        if queue is None:
            if distribute is not None:
                raise self._source.error(distribute, "DISTRIBUTE BY gives events a key in a queue: INSERT INTO one")
            if not stream.windows:
                raise self._source.error(
                    select,
                    "without a window there are no live rows: name the queue of the results, INSERT INTO queue "
                    "SELECT ...",
                )
            stream.check()
            return stream
        partition = None
        if distribute is not None:
            if len(distribute.expressions) != 1:
                raise self._source.error(distribute, "an event has one key: DISTRIBUTE BY one expression")
            partition = distribute.expressions[0].this.sql("spark")
        complete = stream.to(queue, partition=partition)
        complete.check()
        return complete

    def _with_functions(self, stream: Definition, select: exp.Expr) -> Definition:
        """Return the stream with the Python functions that its SELECT, and the views in it, call."""
        called: dict[str, SqlFunction] = {}
        waiting, seen = [select], set[str]()
        while waiting:
            query = waiting.pop()
            called |= called_functions(self._source, query, self.application.functions)
            views = {table_name(table).lower() for table in query.find_all(exp.Table)} & self._views.keys() - seen
            waiting += [self._views[name] for name in views]
            seen |= views
        return replace(stream, functions=called) if called else stream

    def _add_query(self, start: int, name: str, stream: Definition, options: dict[str, Any]) -> None:
        if check_name(name, "query") in self.application.queries:
            raise self._source.error(
                start, f"two queries are called {name!r}: name one with CREATE QUERY other AS INSERT INTO ..."
            )
        self.application.queries[name] = QueryStatement(name, stream, options)

    def _check_new(self, cursor: TokenCursor, what: str, name: str, known: Mapping[str, Any]) -> None:
        if name in known:
            raise self._source.error(cursor.start, f"the {what} {name!r} is created twice: leave one out")
