"""Which columns SQL text means. The expectations are what Spark's own parser answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.stream.expression import names_in
from penstock.stream.sql.column_refs import column_text
from penstock.stream.sql.tokens import arguments_in, one_line, problem_in, tokens_of


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("amount > 0", "amount"),
        ("price * quantity AS total, customer", "price quantity customer"),
        ("a + A + a", "a A"),
        ("_x1 + x_2", "_x1 x_2"),
        ("*", ""),
        ("", ""),
    ],
)
def test_bare_names_count_once_in_the_order_they_appear(text: str, names: str) -> None:
    assert names_in(text) == names.split()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("kind = 'refund of x'", "kind"),
        ('kind = "refund of x"', "kind"),
        ("'it''s z' || x", "x"),
        (r"'it\'s z' || x", "x"),
        (r"r'\' || x", "x"),
        ("X'1F' = x", "x"),
        ("a -- b\n + c", "a c"),
        ("a /* b */ + c", "a c"),
        ("1e5 + 10L + 1.5BD + .5e-3d + x", "x"),
    ],
)
def test_literals_and_comments_have_no_names(text: str, names: str) -> None:
    assert names_in(text) == names.split()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("`weird name` > 1", ["weird name"]),
        ("`a``b`", ["a`b"]),
        ("`select` + `x.y`", ["select", "x.y"]),
        ("`'` + b", ["'", "b"]),
        ("2fa = true", ["2fa"]),
    ],
)
def test_backquotes_name_anything(text: str, names: list[str]) -> None:
    assert names_in(text) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("order.customer.name = 'x'", "order"),
        ("c.`d e`.f", "c"),
        ("items[0].price * items[idx].qty", "items idx"),
        ("f(x).y", "x"),
        ("a['k'].select", "a"),
    ],
)
def test_a_dotted_name_is_a_column_and_fields_inside_it(text: str, names: str) -> None:
    assert names_in(text) == names.split()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("transform(xs, x -> x + y)", "xs y"),
        ("aggregate(xs, 0, (acc, x) -> acc + x.price * rate) + x", "xs rate x"),
        ("filter(items, i -> exists(i.tags, t -> t = i.name OR t = name))", "items name"),
        ("x + transform(xs, x -> x)", "x xs"),
        ("transform(xs, x -> f(x, y)), x", "xs y x"),
        ("transform(xs, `x y` -> `x y` + 1)", "xs"),
    ],
)
def test_the_variables_of_a_lambda_are_no_columns(text: str, names: str) -> None:
    assert names_in(text) == names.split()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a AS b", "a"),
        ("a b, c", "a c"),
        ("a AS b, b AS c", "a b"),
        ("amount * 2 AS amount", "amount"),
        ("struct(a AS b, c)", "a c"),
        ("stack(2, a, b) AS (x, y)", "a b"),
        ("CAST(a AS decimal(10, 2)) + CAST(b AS array<struct<x: int, y: string>>)[0].x", "a b"),
        ("a::double + b", "a b"),
        ("make_date(day => d, x)", "d x"),
    ],
)
def test_aliases_types_and_names_of_arguments_are_no_columns(text: str, names: str) -> None:
    assert names_in(text) == names.split()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("CASE WHEN a > 1 THEN b ELSE c END", "a b c"),
        ("a IN (b, c) AND d NOT IN (1) AND e NOT LIKE 'x' AND f BETWEEN g AND h", "a b c d e f g h"),
        ("a IS NOT DISTINCT FROM b", "a b"),
        ("a IS NULL OR NOT TRUE", "a"),
        ("extract(year FROM ts) + trim(BOTH 'x' FROM name)", "ts name"),
        ("date >= date '2020-01-01' - interval 5 days", "date"),
        ("current_timestamp > t", "t"),
        ("sum(a) FILTER (WHERE b > 1)", "a b"),
        ("sum(a) OVER (PARTITION BY b ORDER BY c DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)", "a b c"),
        ("if(a, b, c) + coalesce(d, e)", "a b c d e"),
    ],
)
def test_words_of_the_language_and_functions_are_no_columns(text: str, names: str) -> None:
    assert names_in(text) == names.split()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("timestamp > timestamp '2020-01-01'", "timestamp"),
        ("end - start", "end start"),
        ("CASE WHEN a THEN b END + end", "a b end"),
        ("from = 'a' AND to > 3", "from to"),
        ("a > end AND b < from", "a end b from"),
        ("left > right", "left right"),
        ("order.total > limit", "order limit"),
        ("week + month + day + user + date + interval", "week month day user date interval"),
        ("values + row + range + view + map + array + count", "values row range view map array count"),
        ("when > 2 AND then = 3", "when then"),
    ],
)
def test_a_word_of_the_language_is_a_column_where_it_can_be_one(text: str, names: str) -> None:
    assert names_in(text) == names.split()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "SELECT customer, amount * fx.rate AS amount FROM stream JOIN fx USING (currency)",
            "customer amount currency",
        ),
        ("SELECT s.a, f.b FROM stream s LEFT JOIN app.fx AS f ON s.c = f.c WHERE d > 1", "a c d"),
        ("SELECT stream.a, b.c FROM stream", "a b c"),
        ("SELECT stream.* FROM stream", ""),
        ("SELECT t.a FROM (SELECT b, * FROM stream) t ORDER BY d LIMIT 3", "t a b d"),
        ("SELECT item.x FROM stream LATERAL VIEW explode(items) e AS item", "item x items"),
    ],
)
def test_a_query_names_columns_of_the_stream(text: str, names: str) -> None:
    assert names_in(text) == names.split()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Column<'>(a, 1)'>", "a"),
        ("Column<'and(=(a.b, 'it\\'s x'), isNull(c))'>", "a c"),
        ("Column<'CASE WHEN >(a, 1) THEN 'y' ELSE b END AS z'>", "a b"),
        ("Column<'transform(xs, x_1 -> +(x_1, y))'>", "xs y"),
        ("Column<'in(a, 'p', 'q')'>", "a"),
        ("Column<'s['k']'>", "s"),
        ("Column<''foo bar''>", ""),
    ],
)
def test_a_spark_column_as_it_prints_itself_names_columns(text: str, names: str) -> None:
    assert names_in(text) == names.split()


def test_a_spark_column_reads_the_same_however_many_lambdas_came_before_it() -> None:
    text = "Column<'aggregate(xs, 0, (x_{}, y_{}) -> +(x_{}, y_{}))'>"
    assert column_text(text.format(1, 2, 1, 2)) == column_text(text.format(17, 18, 17, 18))
    assert column_text("Column<'+(x_7, 1)'>") == "+(x_7, 1)"


columns = st.from_regex(r"c[0-9]{1,3}", fullmatch=True)
shapes = st.sampled_from(
    ["{} + {}", "f({}, {})", "CASE WHEN {} THEN {} END", "{}.z = {}", "({}) AND NOT {}", "{} IN ({}, 'c0')", "{}[{}]"]
)


@given(st.recursive(columns, lambda inner: st.builds(str.format, shapes, inner, inner), max_leaves=12))
def test_no_column_of_an_expression_is_missed_and_none_is_made_up(text: str) -> None:
    used = [token.text for token in tokens_of(text) if token.text.startswith("c")]
    assert names_in(text) == list(dict.fromkeys(used))


@given(st.text())
def test_any_text_can_be_asked(text: str) -> None:
    names_in(text)
    arguments_in(text)
    assert one_line(one_line(text)) == one_line(text) or problem_in(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a > 1", None),
        ("f(a, xs[1], ')')", None),
        ("(a", "( that is not closed"),
        ("a) + (b", ") that closes nothing"),
        ("(a]", "] that closes nothing"),
        ("a = 'x", "quote"),
        ("`a", "quote"),
        ("a; b", "semicolon"),
        ("-- nothing", "empty"),
    ],
)
def test_what_is_no_expression_is_told(text: str, problem: str | None) -> None:
    told = problem_in(text)
    assert (told is None) if problem is None else (told is not None and problem in told)


def test_only_commas_outside_brackets_and_quotes_part_arguments() -> None:
    assert arguments_in("f(a, b), ',', xs[1, 2]") == ["f(a, b)", "','", "xs[1, 2]"]


def test_one_line_keeps_what_is_quoted() -> None:
    assert one_line(" a  =\n 'x  y' -- why\n AND `b  c` ") == "a = 'x  y' AND `b  c`"
