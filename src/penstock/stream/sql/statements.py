"""Statements: a file of them is a whole application, with its queues, reference tables, queries and sinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.core.errors import InvalidRequest, InvalidSql, shown
from penstock.core.names import check_name
from penstock.log.options import check_options, check_partitioning
from penstock.stream.sql.clauses import check_clauses
from penstock.stream.sql.parser import Source
from penstock.stream.sql.select import Catalog, Selecting, table_name
from penstock.stream.sql.tokens import Token, closing

if TYPE_CHECKING:
    from penstock.stream.definition import Definition
    from penstock.stream.steps import Table

_S = TypeVar("_S", bound="Definition")

#: What a query can be told about its windows, and about how it runs.
_WINDOW_RULES = ("grace_seconds", "allowed_lateness_seconds", "idle_flush_seconds", "late")
_RUN_OPTIONS = ("interval_seconds", "history_retention_seconds", "max_events_per_cycle", "key_name")
_EXAMPLE = "INSERT INTO totals SELECT ... FROM orders"
_STATEMENTS = (
    "a statement is CREATE QUEUE, CREATE REFERENCE, CREATE VIEW, CREATE QUERY, CREATE SINK or INSERT INTO ... SELECT"
)


@dataclass(frozen=True)
class QueueWanted:
    """A queue that is made if it is not there."""

    name: str
    #: Declared types of its fields, for those who read it.
    schema: dict[str, str]
    options: dict[str, Any]
    partitioning: str | None = None
    partitions: int | None = None
    #: Whether its events have more fields than those that are declared.
    has_more: bool = False


@dataclass(frozen=True)
class SinkWanted:
    """Where the events of a queue go: the text that ``penstock sink run --to`` takes."""

    name: str
    queue: str
    to: str
    pace: dict[str, Any]
    #: Where the statement stands, for who finds that there is no such sink.
    place: str


@dataclass(frozen=True)
class QueryWanted:
    """A stream and how it runs."""

    name: str
    stream: Definition
    options: dict[str, Any]


@dataclass
class Application:
    """What a file of statements stands for."""

    queues: dict[str, QueueWanted] = field(default_factory=dict)
    references: dict[str, Table] = field(default_factory=dict)
    queries: dict[str, QueryWanted] = field(default_factory=dict)
    sinks: dict[str, SinkWanted] = field(default_factory=dict)

    def in_order(self) -> list[QueryWanted]:
        """The queries, each after those that write what it reads; where they go round in a circle, as they stand."""
        left, found = list(self.queries.values()), list[QueryWanted]()
        while left:
            unwritten = {query.stream.sink for query in left}
            ready = [query for query in left if not unwritten & set(query.stream.sources)] or left[:1]
            found += ready
            left = [query for query in left if query not in ready]
        return found


def read_application(kind: type[Definition], text: str, name: str = "") -> Application:
    """The application that a text of statements stands for. Nothing is asked of Spark or of a database."""
    return _Reader(kind, Source(text, name)).read()


def stream_of(kind: type[_S], statement: str, **tables: Any) -> _S:
    """One statement as a stream: ``Stream.sql("INSERT INTO totals SELECT ...", customers="crm.customers")``."""
    from penstock.stream.definition import table

    given: object = statement
    if not isinstance(given, str):
        raise InvalidRequest(f"sql takes a statement in a text, such as {_EXAMPLE!r}, not {shown(given)}")
    reader = _Reader(kind, Source(statement))
    reader.application.references.update({name: table(given) for name, given in tables.items()})
    found = list(reader.read().queries.values())
    if len(found) != 1:
        raise InvalidRequest(f"give one statement, {_EXAMPLE} ...; a whole file is for `penstock sql`")
    stream: Any = found[0].stream
    made: _S = stream
    return made


class _Reader:
    """Goes through the statements, one after the other."""

    def __init__(self, kind: type[Definition], source: Source) -> None:
        self.application = Application()
        self._kind = kind
        self._source = source
        self._views: dict[str, Any] = {}
        self._tokens: list[Token] = []
        self._place = 0
        self._replaces = False

    def read(self) -> Application:
        """All of them."""
        for tokens in self._source.statements():
            self._tokens, self._place = tokens, 0
            try:
                self._statement()
            except InvalidSql:
                raise
            except InvalidRequest as error:
                raise self._source.refuse(tokens[0].start, str(error)) from None
            except RecursionError:
                raise self._source.refuse(
                    tokens[0].start, "it is nested too deep to be read: put parts of it into views"
                ) from None
        return self.application

    def _statement(self) -> None:
        first, second = self._word(0), self._word(1)
        if first == "insert" or first in ("select", "with"):
            return self._insert(None, {})
        if first == "create":
            self._place = 1
            self._replaces = self._take("or")
            if self._replaces:
                self._expect("replace")
            temporary = self._take("temporary") or self._take("temp")
            kinds = {"queue": self._queue, "reference": self._reference, "view": self._view, "sink": self._sink}
            kinds["query"] = self._query
            what = self._word(self._place)
            if what in kinds and what != "view" and self._replaces:
                raise self._refused(
                    f"only a view is replaced: leave OR REPLACE out. A {what} that is there already goes on as it is"
                    if what in ("queue", "query")
                    else f"only a view is replaced: leave OR REPLACE out, and create the {what} once"
                )
            if what in kinds and not (temporary and what != "view"):
                self._place += 1
                return kinds[what]()
            if what == "table":
                raise self._refused(
                    "a table of PostgreSQL is made there; for one to join with write CREATE REFERENCE name FROM "
                    "'schema.table', for events CREATE QUEUE name (...)"
                )
        raise self._source.refuse(self._tokens[0].start, f"{first.upper()} {second.upper()}: {_STATEMENTS}".strip())

    # Statements

    def _queue(self) -> None:
        """``CREATE QUEUE [IF NOT EXISTS] name [(column type, ... [, *])] [WITH (option = value, ...)]``."""
        self._take_all("if", "not", "exists")
        name = check_name(self._name("a queue"), "queue")
        schema, has_more = self._columns() if self._text(self._place) == "(" else ({}, False)
        options = self._options()
        self._end()
        partitioning, partitions = options.pop("partitioning", None), options.pop("partitions", None)
        check_partitioning(partitioning or "hash", partitions)
        check_options(options)
        self._check_new("queue", name, self.application.queues)
        self.application.queues[name] = QueueWanted(name, schema, options, partitioning, partitions, has_more)

    def _reference(self) -> None:
        """``CREATE REFERENCE name FROM 'schema.table' | AS SELECT ... [WITH (refresh_seconds = 60, notify = 'c')]``."""
        from penstock.stream.definition import table

        name = self._name("a reference table")
        options: dict[str, Any] = {}
        if self._take("from"):
            what = self._string() if self._kind_at(self._place) == "string" else self._dotted()
            options = self._options()
            self._end()
        else:
            options = self._options()
            self._expect("as")
            what = self._source.text[self._select_start() : self._stop()]
        known = {key: options.pop(key) for key in ("refresh_seconds", "notify") if key in options}
        if options:
            raise self._refused(
                f"{next(iter(options))!r} is no option of a reference table; there are refresh_seconds, notify"
            )
        self._check_new("reference table", name, self.application.references)
        self.application.references[name] = table(what, **known)

    def _view(self) -> None:
        """``CREATE VIEW name AS SELECT ...``: put in wherever it is named."""
        name = self._name("a view")
        self._expect("as")
        parsed = self._source.parse(self._select_start(), self._stop())
        if not self._replaces:
            self._check_new("view", name.lower(), self._views)
        self._views[name.lower()] = parsed

    def _query(self) -> None:
        """``CREATE QUERY name [WITH (option = value, ...)] AS [INSERT INTO queue] SELECT ...``."""
        name = self._name("a query")
        options = self._options()
        self._expect("as")
        self._insert(name, options)

    def _insert(self, name: str | None, options: dict[str, Any]) -> None:
        from sqlglot import exp

        start = self._select_start()
        parsed = self._source.parse(start, self._stop())
        select, queue = parsed, None
        if isinstance(parsed, exp.Insert):
            if not isinstance(parsed.this, exp.Table):
                raise self._source.refuse(
                    parsed.this, "a queue has no columns to list: name those of the SELECT with AS"
                )
            if parsed.args.get("overwrite"):
                raise self._source.refuse(start, "a queue is appended to: write INSERT INTO")
            check_clauses(self._source, parsed)
            check_clauses(self._source, parsed.this)
            queue, select = table_name(parsed.this), parsed.expression
        if name is None and queue is None:
            raise self._source.refuse(
                start,
                "say where it goes, INSERT INTO totals SELECT ..., or what it is called, CREATE QUERY totals AS "
                "SELECT ..., for live rows alone",
            )
        rules = {key: options.pop(key) for key in _WINDOW_RULES if key in options}
        chosen = {key: options.pop(key) for key in _RUN_OPTIONS if key in options}
        if options:
            known = ", ".join((*_WINDOW_RULES, *_RUN_OPTIONS))
            raise self._source.refuse(start, f"{next(iter(options))!r} is no option of a query; there are {known}")
        queues = self.application.queues.values()
        catalog = Catalog(
            {queue.name: queue.schema for queue in queues},
            [queue.name for queue in queues if queue.has_more],
            self.application.references,
            self._views,
        )
        if isinstance(select, exp.Query) and parsed.args.get("with_") is not None and parsed is not select:
            select.set("with_", parsed.args["with_"])
        stream = Selecting(self._source, catalog, self._kind).stream(select, rules)
        self._add(start, name or str(queue), self._sent(stream, select, queue, start), chosen)

    def _sent(self, stream: Definition, select: Any, queue: str | None, start: int) -> Definition:
        """The stream with its end: the queue, and by DISTRIBUTE BY the key there."""
        distribute = select.args.get("distribute")
        if queue is None:
            if distribute is not None:
                raise self._source.refuse(distribute, "DISTRIBUTE BY gives events a key in a queue: INSERT INTO one")
            if not stream.windows:
                raise self._source.refuse(
                    select, "without a window there are no live rows: say where it goes, INSERT INTO queue SELECT ..."
                )
            stream.check()
            return stream
        partition = None
        if distribute is not None:
            if len(distribute.expressions) != 1:
                raise self._source.refuse(distribute, "an event has one key: DISTRIBUTE BY one expression")
            partition = distribute.expressions[0].this.sql("spark")
        made = stream.to(queue, partition=partition)
        made.check()
        return made

    def _add(self, start: int, name: str, stream: Definition, options: Mapping[str, Any]) -> None:
        if check_name(name, "query") in self.application.queries:
            raise self._source.refuse(
                start, f"two queries are called {name!r}: name one with CREATE QUERY other AS INSERT INTO ..."
            )
        self.application.queries[name] = QueryWanted(name, stream, dict(options))

    def _sink(self) -> None:
        """``CREATE SINK name FROM queue TO 'file:out.jsonl' [WITH (every = 60)]``."""
        name = self._name("a sink")
        self._expect("from")
        queue = self._dotted()
        self._expect("to")
        to = self._string()
        pace = self._options()
        self._end()
        self._check_new("sink", name, self.application.sinks)
        self.application.sinks[name] = SinkWanted(
            name, check_name(queue, "queue"), to, pace, self._source.place(self._tokens[0].start)
        )

    def _check_new(self, what: str, name: str, known: Mapping[str, Any]) -> None:
        """Refuse what would silently take the place of another."""
        if name in known:
            raise self._source.refuse(self._tokens[0].start, f"the {what} {name!r} is created twice: leave one out")

    # Tokens

    def _word(self, place: int) -> str:
        return self._tokens[place].word if place < len(self._tokens) else ""

    def _text(self, place: int) -> str:
        return self._tokens[place].text if place < len(self._tokens) else ""

    def _kind_at(self, place: int) -> str:
        return self._tokens[place].kind if place < len(self._tokens) else ""

    def _select_start(self) -> int:
        if self._place >= len(self._tokens):
            raise self._refused("a SELECT is expected after this")
        return self._tokens[self._place].start

    def _stop(self) -> int:
        last = self._tokens[-1]
        return last.start + len(last.text)

    def _take(self, word: str) -> bool:
        if self._word(self._place) != word:
            return False
        self._place += 1
        return True

    def _take_all(self, *words: str) -> None:
        if self._take(words[0]):
            for word in words[1:]:
                self._expect(word)

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._refused(f"{word.upper()} is expected here")

    def _refused(self, message: str) -> InvalidSql:
        place = min(self._place, len(self._tokens) - 1)
        return self._source.refuse(self._tokens[place].start, message)

    def _end(self) -> None:
        if self._place < len(self._tokens):
            raise self._refused(
                f"nothing is expected here: {self._text(self._place)!r} is too much; perhaps a ; is missing"
            )

    def _name(self, what: str) -> str:
        if self._place >= len(self._tokens) or not self._tokens[self._place].is_name:
            raise self._refused(f"the name of {what} is expected here; one with other signs is quoted: `my-queue`")
        return self._dotted()

    def _dotted(self) -> str:
        parts: list[str] = []
        while self._place < len(self._tokens) and self._tokens[self._place].is_name:
            parts.append(self._tokens[self._place].name)
            self._place += 1
            if self._text(self._place) != ".":
                break
            self._place += 1
        if not parts:
            raise self._refused("a name is expected here; one with other signs is quoted: `my-queue`")
        return ".".join(parts)

    def _string(self) -> str:
        if self._kind_at(self._place) != "string":
            raise self._refused("a text in quotes is expected here")
        self._place += 1
        return _unquoted(self._text(self._place - 1))

    def _closed(self) -> int:
        """Where what is opened here is closed."""
        end = closing(self._tokens, self._place)
        if end >= len(self._tokens):
            raise self._refused("this ( is not closed")
        return end

    def _columns(self) -> tuple[dict[str, str], bool]:
        """``(amount decimal(18,2), at timestamp)``; a * at the end says that there are more."""
        end = last = self._closed()
        place = self._place + 1
        has_more = self._text(end - 1) == "*"
        if has_more and end - 1 > place:
            end -= 1
            if self._text(end - 1) != ",":
                raise self._source.refuse(self._tokens[end].start, "a , is expected before the *")
        end -= has_more
        found: dict[str, str] = {}
        while place < end:
            begin, depth = place, 0
            while place < end and not (depth == 0 and self._text(place) == ","):
                depth += (self._text(place) in "(<") - (self._text(place) in ")>")
                place += 1
            if place - begin < 2 or not self._tokens[begin].is_name:
                raise self._source.refuse(
                    self._tokens[begin].start, "a column is a name and a type: amount decimal(18,2)"
                )
            ending, start = self._tokens[place - 1], self._tokens[begin + 1].start
            text = self._source.text[start : ending.start + len(ending.text)]
            found[self._tokens[begin].name] = self._source.check_type(start, text)
            place += 1
        self._place = last + 1
        return found, has_more

    def _options(self) -> dict[str, Any]:
        """``WITH (name = value, ...)``: numbers, texts in quotes, TRUE, FALSE and NULL."""
        if not self._take("with"):
            return {}
        if self._text(self._place) != "(":
            raise self._refused("options stand in parentheses: WITH (partitions = 4)")
        end = self._closed()
        self._place += 1
        found: dict[str, Any] = {}
        while self._place < end:
            if not self._tokens[self._place].is_name or self._text(self._place + 1) != "=":
                raise self._refused("an option is a name and a value: partitions = 4")
            name = self._tokens[self._place].name
            self._place += 2
            if name in found:
                raise self._refused(f"{name} is given twice")
            found[name] = self._value()
            if self._place < end and self._text(self._place) != ",":
                raise self._refused("a , is expected between options")
            self._place += self._place < end
        self._place = end + 1
        return found

    def _value(self) -> Any:
        sign = -1 if self._text(self._place) == "-" else 1
        self._place += sign < 0
        token = self._tokens[self._place]
        self._place += 1
        if token.kind == "number":
            try:
                return sign * int(token.text)
            except ValueError:
                try:
                    return sign * float(token.text)
                except ValueError:
                    pass
        elif token.kind == "string" and sign > 0:
            return _unquoted(token.text)
        elif token.word in _CONSTANTS and sign > 0:
            return _CONSTANTS[token.word]
        self._place -= 1
        raise self._refused(f"{token.text} is no value: write a number, a text in quotes, TRUE, FALSE or NULL")


_CONSTANTS = {"true": True, "false": False, "null": None}


def _unquoted(text: str) -> str:
    if text[0] in "rR":
        return text[2:-1]
    return text[1:-1].replace("\\'", "'").replace('\\"', '"').replace("\\\\", "\\")
