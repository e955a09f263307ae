"""Types and lists of columns, as Spark spells them."""

from __future__ import annotations

import pytest

from penstock.stream.sql.column_types import find_columns_problem, parse_type


@pytest.mark.parametrize("text", ["int", "decimal(18,2)", "array<struct<a:int, b string>>", "MAP<string, int>", "long"])
def test_spark_types_are_parsed(text: str) -> None:
    assert parse_type(text) is not None


@pytest.mark.parametrize(
    "text", ["", "intt", "text", "uuid", "array", "array<strng>", "decimal(x)", "int, int", "'int'"]
)
def test_other_types_are_refused(text: str) -> None:
    assert parse_type(text) is None


def test_types_are_compared_by_meaning() -> None:
    assert parse_type("INTEGER") == parse_type("int")
    assert parse_type("int") != parse_type("bigint")


@pytest.mark.parametrize("text", ["a int", "from string, end: int NOT NULL, `a b` array<int> COMMENT 'x', date date"])
def test_columns_that_spark_reads_have_no_problem(text: str) -> None:
    assert find_columns_problem(text) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("n bigin", "'bigin' is no type; did you mean 'bigint'?"),
        ("n", "the type of 'n' is missing"),
        ("n int,", "a field is missing at its end"),
        ("n int m string", "'m' is not expected"),
        ("a array<int", "a type or a > is missing at its end"),
        ("a 'x", "a quote is not closed"),
        ("a int>, b struct<c int", "is not expected"),
    ],
)
def test_problem_of_a_column_list(text: str, problem: str) -> None:
    assert problem in (find_columns_problem(text) or "")
