"""Which columns SQL text refers to. The expectations are those of Spark's own parser."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.stream.sql.column_refs import StructReference, bare_column, column_names, struct_references
from penstock.stream.sql.sql_text import find_problem


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
def test_column_names_are_unique_and_in_order(text: str, names: str) -> None:
    assert column_names(text) == names.split()


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
def test_literals_and_comments_contain_no_columns(text: str, names: str) -> None:
    assert column_names(text) == names.split()


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
def test_backquoted_names_are_columns(text: str, names: list[str]) -> None:
    assert column_names(text) == names


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
def test_fields_of_structs_are_not_columns(text: str, names: str) -> None:
    assert column_names(text) == names.split()


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
def test_lambda_variables_are_not_columns(text: str, names: str) -> None:
    assert column_names(text) == names.split()


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
def test_aliases_types_and_argument_names_are_not_columns(text: str, names: str) -> None:
    assert column_names(text) == names.split()


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
def test_keywords_and_functions_are_not_columns(text: str, names: str) -> None:
    assert column_names(text) == names.split()


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
def test_keywords_are_columns_where_only_a_name_can_stand(text: str, names: str) -> None:
    assert column_names(text) == names.split()


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
def test_query_refers_to_columns_of_the_stream_only(text: str, names: str) -> None:
    assert column_names(text) == names.split()


columns = st.from_regex(r"c[0-9]{1,3}", fullmatch=True)
shapes = st.sampled_from(
    [
        "{} + {}",
        "f({}, {})",
        "CASE WHEN {} THEN {} END",
        "({}).z = {}",
        "({}) AND NOT {}",
        "({} IN ({}, 'c0'))",
        "({})[{}]",
    ]
)


@given(st.recursive(columns, lambda inner: st.builds(str.format, shapes, inner, inner), max_leaves=12))
def test_column_names_of_generated_expressions(text: str) -> None:
    used = re.findall(r"\bc[0-9]+\b", text.replace("'c0'", ""))
    assert column_names(text) == list(dict.fromkeys(used))


@given(st.text())
def test_column_names_of_any_tokenizable_text(text: str) -> None:
    if find_problem(text) is None:
        column_names(text)


@pytest.mark.parametrize("text", ["x >>> 2 = y", "f(X '1F', x) = y", "x > > y"])
def test_text_that_sqlglot_cannot_parse_refers_to_all_its_names(text: str) -> None:
    assert {"x", "y"} <= set(column_names(text))


@pytest.mark.parametrize(
    ("text", "name"),
    [("a", "a"), ("`a b`", "a b"), (" a ", "a"), ("a.b", None), ("a + 1", None), ("f(a)", None), ("(", None)],
)
def test_bare_column(text: str, name: str | None) -> None:
    assert bare_column(text) == name


FIELD = StructReference(["price"], False)
WHOLE = StructReference([], False)


@pytest.mark.parametrize(
    ("text", "references"),
    [
        ("left.price > right.price", [FIELD]),
        ("LEFT.price.net AS p, `left`.`price`", [FIELD, StructReference(["price", "net"], False)]),
        ("right.left", []),
        ("left(name, 2)", []),
        ("left", [WHOLE]),
        ("to_json(left)", [WHOLE]),
        ("left.*", [WHOLE]),
        ("left IS NOT NULL", [StructReference([], True)]),
        ("SELECT s.left.price, stream.right.x FROM stream s", [FIELD]),
        ("left.price >>> 1", [WHOLE]),
    ],
)
def test_struct_references(text: str, references: list[StructReference]) -> None:
    assert struct_references(text, "left") == references
