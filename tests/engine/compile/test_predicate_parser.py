"""Conditions that workers evaluate have the same result as in Spark; others are left to Spark."""

from __future__ import annotations

import pickle
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import acero
from pyspark.sql import SparkSession

from penstock.engine.compile import exact_decimals
from penstock.engine.compile.predicate_parser import parse_field_list, parse_predicate
from penstock.engine.spark.spark_session import new_session
from penstock.engine.worker.json_columns import DEFAULT_NUMBER

FIELDS = {
    "amount": pa.field("amount", DEFAULT_NUMBER),
    "price": pa.field("price", pa.decimal128(8, 2)),
    "n": pa.field("n", pa.int64()),
    "ratio": pa.field("ratio", pa.float64()),
    "who": pa.field("who", pa.string()),
    "new": pa.field("new", pa.bool_()),
}
VALUES: dict[str, list[Any]] = {
    "amount": [None, *map(Decimal, ("0", "-0.5", "0.5", "10", "9.999999999999999999", "99999999999999999999", "-7"))],
    "price": [None, *map(Decimal, ("0.00", "10.00", "10.01", "-10.00", "999999.99"))],
    "n": [None, 0, 1, -1, 10, 2**63 - 1, -(2**63), 999999999999999999],
    "ratio": [None, 0.0, -0.0, 0.1, 0.5, 10.0, -1e300, 123456789012345.0],
    "who": [None, "", "a", "A", "b", "ab", "é", "z\n", " a", "𝄞", "\uffff"],
    "new": [None, True, False],
}
LITERALS = {
    "amount": ["0", "10", "-7", "0.5", "-0.50", "9.999999999999999999", "99999999999999999999", "10.0"],
    "price": ["0", "10", "10.01", "-10.00", "999999.99", "007"],
    "n": ["0", "1", "-1", "10", "999999999999999999", "-999999999999999999"],
    "ratio": ["0", "-0.0", "0.1", "0.5", "10", "123456789012345", "0.10000000000000"],
    "who": ["''", "'a'", "'A'", "'ab'", "'é'", "' a'", "'𝄞'", "'10'"],
    "new": ["true", "FALSE"],
}


def random_condition(chance: random.Random, depth: int) -> str:
    if depth and chance.random() < 0.6:
        left, right = (random_condition(chance, depth - 1) for _ in range(2))
        return chance.choice([f"({left}) AND {right}", f"{left} or ({right})", f"NOT ({left})", f"{left} AND {right}"])
    name = chance.choice(list(FIELDS))
    one, other = chance.choice(LITERALS[name]), chance.choice(LITERALS[name])
    sign = chance.choice(["=", "==", "<>", "!=", "<", "<=", ">", ">="])
    shapes = [f"{name} {sign} {one}", f"{one} {sign} `{name}`", f"{name} IS NULL", f"{name} is not null"]
    shapes += [f"{name} IN ({one}, {other})", f"{name} NOT IN ({one})", f"{name} BETWEEN {one} AND {other}"]
    shapes += [f"NOT {name} {sign} {one}", f"{name} not between {one} and {other}"]
    return chance.choice([*shapes, name, f"NOT {name}"] if name == "new" else shapes)


def evaluate(condition: pc.Expression, table: pa.Table) -> list[bool | None]:
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    project = acero.Declaration("project", acero.ProjectNodeOptions([condition], ["is_met"]), [source])
    return [row["is_met"] for row in project.to_table(use_threads=False).to_pylist()]


def test_conditions_have_the_same_result_as_in_spark(spark: SparkSession) -> None:
    chance = random.Random(7)
    rows = [{name: chance.choice(values) for name, values in VALUES.items()} for _ in range(300)]
    table = pa.Table.from_pylist(rows, schema=pa.schema(list(FIELDS.values())))
    texts = [text for text in (random_condition(chance, 2) for _ in range(80)) if "''" not in text]
    session = new_session(spark)

    expected = (
        session.createDataFrame(table).select(*[exact_decimals.column(session, text) for text in texts]).toArrow()
    )

    for index, text in enumerate(texts):
        condition = parse_predicate(text, FIELDS)
        assert condition is not None, text
        assert evaluate(condition, table) == expected.column(index).to_pylist(), text


@pytest.mark.parametrize(
    "text",
    [
        "amount > n",
        "amount > 1e3",
        "amount > 100000000000000000000",  # Spark would round the field
        "amount = 0.1234567890123456789",
        "price = 0.001",
        "n > 2.5",
        "n = 9223372036854775808",
        "n > 10L",
        "n > 0x10",
        "n = '10'",
        "ratio > 0.1234567890123456",
        "who > 3",
        "who = 'it''s'",
        "who = 'a\\n'",
        'who = "a"',
        "who = r'a'",
        "who LIKE 'a%'",
        "lower(who) = 'a'",
        "who.name = 'a'",
        "amount + 1 > 2",
        "n <=> 1",
        "n > NULL",
        "n IN (1, NULL)",
        "n IN (SELECT 1)",
        "n > 1 -- nothing more",
        "n",
        "true",
        "other > 1",
        "N > 1",
        "n > 1 > 0",
        "CASE WHEN new THEN true END",
        "n > (",
    ],
)
def test_ambiguous_conditions_are_left_to_spark(text: str) -> None:
    assert parse_predicate(text, FIELDS) is None


def test_a_select_list_can_rename_fields() -> None:
    assert parse_field_list("amount AS `a b`, n, `who` name", FIELDS) == {
        "a b": FIELDS["amount"],
        "n": FIELDS["n"],
        "name": FIELDS["who"],
    }


@pytest.mark.parametrize(
    "text",
    ["*", "n + 1 AS n", "upper(who) AS who", "n, n", "other", "DISTINCT n", "n FROM stream WHERE n > 1 --", "1 AS n"],
)
def test_a_select_list_that_computes_is_left_to_spark(text: str) -> None:
    assert parse_field_list(text, FIELDS) is None


@pytest.mark.parametrize("name", ["n", "who", "ratio", "price"])
def test_long_lists_of_values(name: str) -> None:
    quote = "'" if name == "who" else ""
    values = ", ".join(f"{quote}{i}{quote}" for i in range(3, 3000))
    kinds: dict[str, Any] = {"n": int, "who": str, "ratio": float, "price": Decimal}
    table = pa.table({name: pa.array([None, kinds[name](1), kinds[name](5)], FIELDS[name].type)})
    for text, expected in (
        (f"{name} IN ({values})", [None, False, True]),
        (f"{name} NOT IN ({values})", [None, True, False]),
        (" OR ".join(f"{name} = {quote}{i}{quote}" for i in range(3, 3000)), [None, False, True]),
    ):
        condition = parse_predicate(text, FIELDS)
        assert condition is not None
        assert evaluate(pickle.loads(pickle.dumps(condition)), table) == expected  # noqa: S301
