"""SQL text that passes to Spark unchanged: problems, arguments and layout."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.stream.sql.sql_text import find_problem, has_plain_literals, on_one_line, split_arguments, split_call


@given(st.text())
def test_normalizing_whitespace_is_idempotent(text: str) -> None:
    if find_problem(text) is None:
        assert on_one_line(on_one_line(text)) == on_one_line(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a > 1", None),
        ("f(a, xs[1], ')')", None),
        ("(a", "( that is not closed"),
        ("a) + (b", ") that closes nothing"),
        ("(a]", "] that closes nothing"),
        ("a = 'x", "column 5: this quote (') is not closed"),
        ('a = "x', 'column 5: this quote (") is not closed'),
        ("`a", "column 1: this quote (`) is not closed"),
        ("a + ``", "no name"),
        ("a; b", "semicolon"),
        ("-- nothing", "empty"),
    ],
)
def test_problem_of_an_expression(text: str, problem: str | None) -> None:
    found = find_problem(text)
    assert (found is None) if problem is None else (found is not None and problem in found)


def test_arguments_are_split_at_commas_outside_brackets_and_quotes() -> None:
    assert split_arguments("f(a, b), ',', xs[1, 2]") == ["f(a, b)", "','", "xs[1, 2]"]


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("sum", ("sum", "")),
        (" Sum ( a, b ) ", ("sum", "a, b")),
        ("f(a) + g(b)", ("f", "a) + g(b")),
        ("a > 1", ("", "")),
    ],
)
def test_call_is_split_into_name_and_arguments(text: str, call: tuple[str, str]) -> None:
    assert split_call(text) == call


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (" a  =\n 'x  y' -- why\n AND `b  c` ", "a = 'x  y' AND `b  c`"),
        ("a /* b */+10L  +r'x  y'", "a +10L +r'x  y'"),
        ("SELECT /*+ BROADCAST(t) */ a FROM s ORDER\n BY a", "SELECT a FROM s ORDER BY a"),
    ],
)
def test_one_line_has_no_comments_and_keeps_quoted_text(text: str, line: str) -> None:
    assert on_one_line(text) == line


@pytest.mark.parametrize(
    ("text", "is_plain"),
    [("a = 'b'", True), ("a = 'it''s'", False), (r"a = 'b\n'", False), ('a = "b"', False), ("a = r'b'", False)],
)
def test_plain_literals(text: str, is_plain: bool) -> None:
    assert has_plain_literals(text) is is_plain
