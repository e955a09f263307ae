"""A SELECT over the stream, with columns of ours in front of its own."""

from __future__ import annotations

import pytest

from penstock.core.errors import InvalidRequest
from penstock.stream.definition import Definition
from penstock.stream.sql.select_rules import passes_all, with_columns


@pytest.mark.parametrize(
    ("query", "made"),
    [
        ("SELECT a FROM stream", "SELECT `stream`.x, `stream`.y, a FROM `stream`"),
        (
            "select s.a, f.b from stream s left join fx f on f.c = s.c",
            "select s.x, s.y, s.a, f.b from `stream` s left join fx f on f.c = s.c",
        ),
        ("SELECT/* all */a FROM STREAM AS `my s`", "SELECT `my s`.x, `my s`.y,/* all */a FROM `stream` AS `my s`"),
        (
            "SELECT a, 'from stream s' AS t FROM fx, `stream` WHERE stream.a > 1",
            "SELECT `stream`.x, `stream`.y, a, 'from stream s' AS t FROM fx, `stream` WHERE stream.a > 1",
        ),
        (
            "SELECT a FROM stream LEFT JOIN fx USING (c)",
            "SELECT `stream`.x, `stream`.y, a FROM `stream` LEFT JOIN fx USING (c)",
        ),
        ("SELECT *, f.b FROM stream JOIN fx f USING (c)", "SELECT *, f.b FROM `stream` JOIN fx f USING (c)"),
        ("SELECT a FROM stream WHERE a > 1", "SELECT `stream`.x, `stream`.y, a FROM `stream` WHERE a > 1"),
    ],
)
def test_columns_are_those_of_the_stream_whatever_it_is_called(query: str, made: str) -> None:
    assert with_columns(query, ["x", "y"]) == made


@pytest.mark.parametrize(
    ("query", "passes"),
    [
        ("SELECT * FROM stream", True),
        ("SELECT a, * FROM stream", True),
        ("SELECT s.*, f.rate FROM stream s JOIN fx f USING (c)", True),
        ("SELECT STREAM.* FROM stream", True),
        ("SELECT a, f.* FROM stream s JOIN fx f USING (c)", False),
        ("SELECT a * b AS c, (SELECT max(x) FROM (SELECT * FROM t)) AS d FROM stream", False),
        ("SELECT array(1, 2)[1] * a AS c FROM stream", False),
    ],
)
def test_a_star_stands_for_all_fields_of_the_stream(query: str, passes: bool) -> None:
    assert passes_all(query) is passes


def test_what_is_left_out_of_unknown_fields_is_refused() -> None:
    query = "SELECT * EXCEPT (secret) FROM stream"
    with pytest.raises(InvalidRequest, match="name the fields"):
        Definition.from_("orders").sql(query)
    Definition.from_("orders").map("a, secret").filter("a > 1").sql(query)
