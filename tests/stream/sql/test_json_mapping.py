"""Select lists that map JSON objects without Spark."""

from __future__ import annotations

import json
from random import Random

import duckdb
import pytest

from penstock.core.errors import InvalidRequest, InvalidSql
from penstock.stream.sql.json_mapping import compile_mapping

ORDER = (
    b'{"prise": "12,50", "price": "7.50", "big": 123456789012345678901234567890.10, "n": 3, "paid": true, "note": null,'
    b' "order": {"lines": [1, {"sku": "a-1"}]}}'
)


def apply(mapping: str, data: bytes = ORDER) -> str:
    return compile_mapping(mapping).apply(data).decode()


def value(expression: str) -> str:
    """Return the JSON text of one expression."""
    text = apply(f"{expression} AS x")
    return text.removeprefix('{"x":').removesuffix("}")


def test_fields_are_renamed_cast_and_removed_and_others_keep_their_digits() -> None:
    mapping = "* EXCEPT (prise, `order`), cast(replace(prise, ',', '.') AS decimal) AS price, 'EUR' AS currency"

    assert apply(mapping) == (
        '{"price":12.50,"big":123456789012345678901234567890.10,"n":3,"paid":true,"note":null,"currency":"EUR"}'
    )


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("n", "3"),
        ("`order`.lines[1].sku", '"a-1"'),
        ("`order`.lines[9]", "null"),
        ("missing.field", "null"),
        ("n * 1.50", "4.50"),
        ("n / 7", "0.428571428571428571"),
        ("10 / 4", "2.5"),
        ("1000000 * 1000000", "1000000000000"),
        ("-n % 2", "-1"),
        ("n div 2", "1"),
        ("n + missing", "null"),
        ("n > 2 AND paid", "true"),
        ("missing OR paid", "true"),
        ("missing AND NOT paid", "false"),
        ("missing = 1", "null"),
        ("missing <=> note", "true"),
        ("note IS NULL", "true"),
        ("n IS NOT NULL", "true"),
        ("n BETWEEN 1 AND 3", "true"),
        ("n IN (1, 3)", "true"),
        ("n NOT IN (1, missing)", "null"),
        (r"prise LIKE '1_,%'", "true"),
        (r"'100%' LIKE '100\\%'", "true"),
        ("'abcabd' LIKE '%ab_%d'", "true"),
        ("'abc' LIKE '%ab_%d'", "false"),
        ("coalesce(missing, note, 'EUR')", '"EUR"'),
        ("nullif(n, 3)", "null"),
        ("greatest(n, missing, 5)", "5"),
        ("CASE WHEN n > 2 THEN 'large' ELSE 'small' END", '"large"'),
        ("CASE n WHEN 3 THEN 'three' END", '"three"'),
        ("if(paid, 1, 0)", "1"),
        ("cast(price AS int)", "7"),
        ("cast(price AS decimal(10,1))", "7.5"),
        ("cast(price AS double)", "7.5"),
        ("cast(n AS string)", '"3"'),
        ("cast('yes' AS boolean)", "true"),
        ("try_cast(prise AS decimal)", "null"),
        ("round(2.345, 2)", "2.35"),
        ("round(1250, -2)", "1300"),
        ("floor(-1.5)", "-2"),
        ("concat(n, '-', price)", '"3-7.50"'),
        ("upper(trim(' a '))", '"A"'),
        ("substring(price, -2)", '"50"'),
        ("split_part(prise, ',', 2)", '"50"'),
        ("length(price)", "4"),
        ("struct(n AS m, price)", '{"m":3,"price":"7.50"}'),
        ("named_struct('m', n)", '{"m":3}'),
        ("array(1, n)", "[1,3]"),
    ],
)
def test_expressions(expression: str, expected: str) -> None:
    assert value(expression) == expected


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("n + price", "x: a number is needed here, and this is the text '7.50': cast it"),
        ("n = price", "cannot compare the number 3 with the text '7.50'"),
        ("upper(n)", "text is needed here"),
        ("cast(prise AS decimal)", "the text '12,50' is not a number"),
        ("cast(big AS bigint)", "out of range for bigint"),
        ("10 / (n - 3)", "divides by zero"),
        ("cast('1e999999999' AS decimal)", "more than 38 digits"),
        ("n AND paid", "a condition is needed here"),
    ],
)
def test_values_that_do_not_fit_name_the_field_and_the_reason(expression: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        value(expression)


@pytest.mark.parametrize(
    ("mapping", "reason"),
    [
        ("", "a mapping is a select list in SQL"),
        ("n + 1", "give the expression a name"),
        ("* FROM orders", "only the list of fields"),
        ("n AS a WHERE n > 1", "only the list of fields"),
        ("(SELECT 1) AS a", "not available here"),
        ("sum(n) AS a", r"sum\(\) is not available here"),
        ("repeat('a', 1000000000) AS a", r"repeat\(\) is not available here"),
        ("n RLIKE '(a+)+$' AS a", "not available here"),
        ("cast(n AS timestamp) AS a", "a cast to timestamp is not available"),
        ("round(n, 1, 2) AS a", "does not take 3 arguments"),
        ("n AS a, b +", "it cannot be read"),
        ("(" * 2000 + "n" + ")" * 2000 + " AS a", "nested too deep"),
        ("n AS a" + " " * 10_000, "at most 10000 characters"),
    ],
)
def test_a_text_that_is_no_mapping_is_refused_before_any_event(mapping: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        compile_mapping(mapping)


def test_an_error_in_the_text_has_a_position() -> None:
    with pytest.raises(InvalidSql) as caught:
        compile_mapping("n,\n  foo(n) AS a")
    assert (caught.value.line, caught.value.column) == (2, 3)


@pytest.mark.parametrize("data", [b"3", b'"a"', b"[1]", b"null"])
def test_data_that_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="SQL maps objects"):
        apply("*", data)


def test_a_result_cannot_grow_without_bound() -> None:
    data = b'{"a": "' + b"x" * (1 << 20) + b'"}'
    with pytest.raises(InvalidRequest, match="characters"):
        apply(f"concat({', '.join(['a'] * 20)}) AS b", data)
    with pytest.raises(InvalidRequest, match="characters"):
        apply(f"replace(a, 'x', '{'y' * 100}') AS b", data)
    with pytest.raises(InvalidRequest, match="bytes"):
        apply(", ".join(f"a AS a{i}" for i in range(100)), data)


def _boolean(random: Random, depth: int) -> str:
    if depth == 0:
        return random.choice(["p", "q", "true", "false", "null"])
    one, other = _boolean(random, depth - 1), _boolean(random, depth - 1)
    left, low, high = (_number(random, depth - 1) for _ in range(3))
    return random.choice(
        [
            f"({one} AND {other})",
            f"({one} OR {other})",
            f"(NOT {one})",
            f"(({one}) IS NULL)",
            f"(({one}) IS NOT NULL)",
            f"({left} < {low})",
            f"({left} = {low})",
            f"({left} <> {low})",
            f"({left} BETWEEN {low} AND {high})",
            f"({left} IN ({low}, {high}))",
            f"({left} NOT IN ({low}, {high}))",
        ]
    )


def _number(random: Random, depth: int) -> str:
    if depth == 0:
        return random.choice(["a", "b", "c", "0", "7", "1.50"])
    one, other, condition = _number(random, depth - 1), _number(random, depth - 1), _boolean(random, depth - 1)
    return random.choice(
        [
            f"({one} + {other})",
            f"({one} - {other})",
            f"(-{one})",
            f"abs({one})",
            f"coalesce({one}, {other})",
            f"nullif({one}, {other})",
            f"greatest({one}, {other})",
            f"least({one}, {other})",
            f"(CASE WHEN {condition} THEN {one} ELSE {other} END)",
            f"(CASE {one} WHEN {other} THEN 1 END)",
        ]
    )


@pytest.mark.parametrize("seed", range(20))
def test_random_expressions_agree_with_duckdb(seed: int) -> None:
    random = Random(seed)
    with duckdb.connect() as oracle:
        for _ in range(50):
            row = {
                **{name: random.choice([None, True, False]) for name in "pq"},
                **{name: random.choice([None, -2, 0, 1, 7]) for name in "abc"},
            }
            expression = random.choice([_boolean, _number])(random, 3)
            columns = ", ".join(
                f"CAST(? AS {'BOOLEAN' if name in 'pq' else 'DECIMAL(18, 2)'}) AS {name}" for name in row
            )
            statement = f"SELECT {expression} FROM (SELECT {columns})"  # noqa: S608 - of this test
            expected = oracle.execute(statement, list(row.values())).fetchone()

            found = json.loads(apply(f"{expression} AS x", json.dumps(row).encode()))["x"]

            assert expected is not None
            wanted = expected[0] if expected[0] is None or isinstance(expected[0], bool) else float(expected[0])
            assert found == wanted, (expression, row)
