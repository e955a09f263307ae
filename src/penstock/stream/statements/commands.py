"""Parses statements that list, describe or delete: ``SHOW``, ``EXPLAIN`` and ``DROP``. They need no Spark to run.

They do not define anything, so they are not mixed with statements that do.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import Token

from penstock.stream.sql.dialect import StatementSql
from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.statements.cursor import TokenCursor, split_statements
from penstock.stream.statements.statement_parser import DRAFT_VIEW, parse_statement

if TYPE_CHECKING:
    from penstock.stream.definition import Definition

_FIRST_WORDS = ("show", "explain", "drop")
#: The first words of statements that EXPLAIN takes.
_EXPLAINED = ("select", "with", "create", "insert")


class Listing(Enum):
    """What SHOW lists."""

    VIEWS = ("materialized", "views")
    QUERIES = ("queries",)
    QUEUES = ("queues",)


@dataclass(frozen=True)
class ShowStatement:
    listing: Listing


@dataclass(frozen=True)
class DropStatement:
    """``DROP MATERIALIZED VIEW [IF EXISTS] name``."""

    name: str
    if_exists: bool


@dataclass(frozen=True)
class ExplainStatement:
    """``EXPLAIN name``, of a query of the database, or ``EXPLAIN`` with a statement: then it has the stream."""

    name: str
    stream: Definition | None = None


CommandStatement: TypeAlias = ShowStatement | DropStatement | ExplainStatement


def has_commands(text: str, name: str = "") -> bool:
    """Return whether a text has a statement that lists, describes or deletes."""
    source = SqlSource(text, name, StatementSql)
    return any(_is_command(source, tokens) for tokens in split_statements(source))


def parse_commands(kind: type[Definition], text: str, name: str = "") -> list[CommandStatement]:
    """Parse a text of SHOW, EXPLAIN and DROP.

    Args:
        kind: The class of the streams of EXPLAIN.
        text: The statements, separated by semicolons.
        name: The name of the file, for errors.
    """
    source = SqlSource(text, name, StatementSql)
    statements = split_statements(source)
    for tokens in statements:
        if not _is_command(source, tokens):
            raise source.error(
                tokens[0].start,
                f"{tokens[0].text.upper()} defines what runs, and SHOW, EXPLAIN and DROP do not: give them by "
                'themselves, `penstock sql "SHOW MATERIALIZED VIEWS"`, or in a file of their own',
            )
    return [_parse(kind, source, tokens) for tokens in statements]


def _is_command(source: SqlSource, tokens: list[Token]) -> bool:
    return TokenCursor(source, tokens).word() in _FIRST_WORDS


def _parse(kind: type[Definition], source: SqlSource, tokens: list[Token]) -> CommandStatement:
    cursor = TokenCursor(source, tokens)
    with source.locate_errors(cursor.start):
        if cursor.take("show"):
            return _parse_show(cursor)
        if cursor.take("drop"):
            return _parse_drop(cursor)
        cursor.expect("explain")
        return _parse_explain(kind, source, cursor)


def _parse_show(cursor: TokenCursor) -> ShowStatement:
    for listing in Listing:
        if all(cursor.word(number) == word for number, word in enumerate(listing.value)):
            for word in listing.value:
                cursor.expect(word)
            cursor.expect_end()
            return ShowStatement(listing)
    raise cursor.error("SHOW lists MATERIALIZED VIEWS, QUERIES or QUEUES")


def _parse_drop(cursor: TokenCursor) -> DropStatement:
    if not (cursor.take("materialized") and cursor.take("view")):
        raise cursor.error(
            "DROP is for a MATERIALIZED VIEW; `penstock query delete NAME` deletes another query, "
            "`penstock queue delete NAME` a queue"
        )
    if_exists = cursor.take("if")
    if if_exists:
        cursor.expect("exists")
    name = cursor.name("a view")
    cursor.expect_end()
    return DropStatement(name, if_exists)


def _parse_explain(kind: type[Definition], source: SqlSource, cursor: TokenCursor) -> ExplainStatement:
    if cursor.word() in _EXPLAINED and not cursor.is_last:
        query = parse_statement(kind, source, cursor.rest())
        if query is None:
            raise cursor.error("EXPLAIN takes a SELECT, CREATE MATERIALIZED VIEW, CREATE QUERY or INSERT INTO")
        return ExplainStatement("" if query.name == DRAFT_VIEW else query.name, query.stream)
    name = cursor.name("a view or another query")
    cursor.expect_end()
    return ExplainStatement(name)
