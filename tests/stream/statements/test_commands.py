# ruff: noqa: S608 - SQL of tests

from __future__ import annotations

import pytest

from penstock.core.errors import InvalidSql
from penstock.stream.definition import Definition
from penstock.stream.statements.commands import (
    DropStatement,
    ExplainStatement,
    Listing,
    ShowStatement,
    has_commands,
    parse_commands,
)

SELECT = "SELECT customer, count(*) AS n FROM orders GROUP BY customer"


def test_statements_that_list_and_delete() -> None:
    text = "SHOW MATERIALIZED VIEWS; show queries; SHOW QUEUES -- all\n; DROP MATERIALIZED VIEW IF EXISTS `a-b`;"
    assert parse_commands(Definition, f"{text} DROP MATERIALIZED VIEW eu.totals") == [
        *map(ShowStatement, (Listing.VIEWS, Listing.QUERIES, Listing.QUEUES)),
        DropStatement("a-b", if_exists=True),
        DropStatement("eu.totals", if_exists=False),
    ]


@pytest.mark.parametrize(
    ("text", "name", "is_view"),
    [
        (SELECT, "", True),
        (f"WITH t AS ({SELECT}) SELECT max(n) AS m FROM t", "", True),
        (f"CREATE MATERIALIZED VIEW totals WITH (indexes = 'n') AS {SELECT}", "totals", True),
        ("INSERT INTO large SELECT id FROM orders WHERE amount > 10", "large", False),
        ("CREATE QUERY q AS INSERT INTO large SELECT id FROM orders", "q", False),
    ],
)
def test_explain_of_a_statement(text: str, name: str, is_view: bool) -> None:
    (made,) = parse_commands(Definition, f"EXPLAIN {text};")
    assert isinstance(made, ExplainStatement)
    assert made.stream is not None
    assert (made.name, made.stream.view is not None) == (name, is_view)


@pytest.mark.parametrize("name", ["totals", "`select`", "select", "create", "with"])
def test_explain_of_a_name(name: str) -> None:
    assert parse_commands(Definition, f"EXPLAIN {name}") == [ExplainStatement(name.strip("`"))]


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("SHOW TABLES", 6, "SHOW lists MATERIALIZED VIEWS, QUERIES or QUEUES"),
        ("SHOW QUEUES LIKE 'a'", 13, "nothing is expected here"),
        ("DROP QUEUE orders", 6, "`penstock queue delete NAME` a queue"),
        ("DROP MATERIALIZED VIEW a CASCADE", 26, "nothing is expected here"),
        ("DROP MATERIALIZED VIEW", 19, "the name of a view is expected here"),
        ("EXPLAIN", 1, "the name of a view or another query is expected here"),
        ("EXPLAIN CREATE QUEUE orders", 9, "EXPLAIN takes a SELECT, CREATE MATERIALIZED VIEW"),
        ("EXPLAIN SELECT a FRM o", 22, "cannot be read"),
        ("SHOW QUEUES; SELECT a FROM o", 14, "SELECT defines what runs, and SHOW, EXPLAIN and DROP do not"),
    ],
)
def test_what_is_refused(text: str, column: int, reason: str) -> None:
    assert has_commands(text)
    with pytest.raises(InvalidSql, match="column") as refused:
        parse_commands(Definition, text)
    assert reason in str(refused.value)
    assert refused.value.column == column


def test_a_file_that_defines_something_has_no_commands() -> None:
    assert not has_commands(f"CREATE VIEW show AS {SELECT}; INSERT INTO explain SELECT * FROM show")
