"""The SELECT of a step: internal columns in front of its own, and the meaning of ``*``."""

from __future__ import annotations

import pytest

from penstock.core.errors import InvalidRequest
from penstock.stream.definition import Definition
from penstock.stream.sql.select_step import selects_all_fields, with_stream_columns


@pytest.mark.parametrize(
    ("query", "expected"),
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
def test_stream_columns_are_qualified_with_the_alias_of_the_stream(query: str, expected: str) -> None:
    assert with_stream_columns(query, ["x", "y"]) == expected


@pytest.mark.parametrize(
    ("query", "is_all"),
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
def test_star_selects_all_fields_of_the_stream(query: str, is_all: bool) -> None:
    assert selects_all_fields(query) is is_all


def test_except_is_refused_if_the_fields_are_unknown() -> None:
    query = "SELECT * EXCEPT (secret) FROM stream"
    with pytest.raises(InvalidRequest, match="name the fields to select"):
        Definition.from_("orders").sql(query)
    Definition.from_("orders").map("a, secret").filter("a > 1").sql(query)
