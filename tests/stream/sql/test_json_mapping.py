"""Select lists that map JSON objects in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from random import Random

import duckdb
import pytest
import pytest_asyncio

from penstock.core.errors import InvalidRequest, InvalidSql
from penstock.log.dead_letters.mapping import apply_mapping
from penstock.log.log import Log
from penstock.stream.sql.json_mapping import compile_mapping
from tests import servers
from tests.log.logs import opened
from tests.servers import Server

ORDER = (
    b'{"prise": "12,50", "price": "7.50", "big": 123456789012345678901234567890.10, "n": 3, "paid": true, "note": null,'
    b' "order": {"lines": [1, {"sku": "a-1"}]}}'
)


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def mapping_url(pg18: Server) -> Iterator[str]:
    with pg18.fresh_database(servers.TEMPLATE) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def log(mapping_url: str) -> AsyncIterator[Log]:
    async with opened(mapping_url) as log:
        yield log


async def apply(log: Log, mapping: str, data: bytes = ORDER) -> str:
    return (await apply_mapping(compile_mapping(mapping), data, log.database.pool)).decode()


async def value(log: Log, expression: str) -> str:
    """Return the JSON text of one expression."""
    text = await apply(log, f"{expression} AS x")
    return text.removeprefix('{"x":').removesuffix("}")


async def test_fields_are_renamed_cast_and_removed_and_others_keep_their_digits(log: Log) -> None:
    mapping = "* EXCEPT (prise, `order`), cast(replace(prise, ',', '.') AS decimal) AS price, 'EUR' AS currency"

    assert await apply(log, mapping) == (
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
        ("n / 7", "0.42857142857142857143"),
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
        ("n = price", "false"),
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
        ("size(`order`)", "1"),
        ("size(`order`.lines)", "2"),
        ("try_cast(price AS int)", "7"),
        ("try_cast(big AS decimal(10, 2))", "null"),
        ("paid IS TRUE", "true"),
        ("missing IS FALSE", "false"),
        ("struct(n AS m, price)", '{"m":3,"price":"7.50"}'),
        ("named_struct('m', n)", '{"m":3}'),
        ("array(1, n)", "[1,3]"),
    ],
)
async def test_expressions(log: Log, expression: str, expected: str) -> None:
    assert await value(log, expression) == expected


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("n + price", "cannot cast jsonb string to type numeric"),
        ("cast(prise AS decimal)", 'invalid input syntax for type numeric: "12,50"'),
        ("cast(big AS bigint)", "bigint out of range"),
        ("10 / (n - 3)", "division by zero"),
        ("cast('1e999999999' AS decimal)", "overflow"),
        ("cast('NaN' AS decimal)", "no number in JSON"),
        ("n AND paid", "cannot cast jsonb numeric to type boolean"),
    ],
)
async def test_values_that_do_not_fit_name_the_field_and_the_reason(log: Log, expression: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=f"x: .*{reason}"):
        await value(log, expression)


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
        ("n + 'a' AS a", "needs a numeric where it has a text: cast it"),
        ("1 = 'a' AS a", "it compares a numeric with a text: cast one of them"),
        ("named_struct('a') AS a", "each field of a struct needs a name"),
        ("pg_sleep(1) AS a", r"pg_sleep\(\) is not available here"),
        ("size(array(" * 500 + "n" + "))" * 500 + " AS a", "nested too deep"),
        ("n AS a, b +", "it cannot be read"),
        ("(" * 2000 + "n" + ")" * 2000 + " AS a", "nested too deep"),
        ("n AS a" + " " * 10_000, "at most 10000 characters"),
    ],
)
async def test_a_text_that_is_no_mapping_is_refused_before_any_event(mapping: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        compile_mapping(mapping)


async def test_an_error_in_the_text_has_a_position() -> None:
    with pytest.raises(InvalidSql) as caught:
        compile_mapping("n,\n  foo(n) AS a")
    assert (caught.value.line, caught.value.column) == (2, 3)


@pytest.mark.parametrize("data", [b"3", b'"a"', b"[1]", b"null"])
async def test_data_that_is_no_object_is_refused(log: Log, data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="SQL maps objects"):
        await apply(log, "*", data)


async def test_a_result_cannot_grow_without_bound(log: Log) -> None:
    data = b'{"a": "' + b"x" * (1 << 20) + b'"}'
    with pytest.raises(InvalidRequest, match="bytes"):
        await apply(log, f"concat({', '.join(['a'] * 64)}) AS b", data)
    with pytest.raises(InvalidRequest, match="bytes"):
        await apply(log, f"replace(a, 'x', '{'y' * 100}') AS b", data)
    with pytest.raises(InvalidRequest, match="bytes"):
        await apply(log, "replace(a, 'x', a) AS b", data)
    with pytest.raises(InvalidRequest, match="bytes"):
        await apply(log, ", ".join(f"a AS a{i}" for i in range(100)), data)


async def test_a_computation_that_takes_long_is_cancelled(log: Log) -> None:
    data = b'{"n": ' + b"9" * 60_000 + b"}"
    mapping = compile_mapping(f"array({', '.join(['n * n'] * 100)}) AS x")
    with pytest.raises(InvalidRequest, match=r"x: it took longer than 0\.001 seconds"):
        await apply_mapping(mapping, data, log.database.pool, timeout_ms=1)
    assert await apply(log, "n + 1 AS x", b'{"n": 1}') == '{"x":2}'


async def test_quotes_and_percent_signs_are_text(log: Log) -> None:
    text = await value(log, """concat("it's", '%s', '%(p0)s', '{0}')""")
    assert json.loads(text) == "it's%s%(p0)s{0}"


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
async def test_random_expressions_agree_with_duckdb(log: Log, seed: int) -> None:
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

            found = json.loads(await apply(log, f"{expression} AS x", json.dumps(row).encode()))["x"]

            assert expected is not None
            wanted = expected[0] if expected[0] is None or isinstance(expected[0], bool) else float(expected[0])
            assert found == wanted, (expression, row)
