"""The columns that Penstock finds in SQL and in Spark Columns are those that Spark's own parser finds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession, Window
from pyspark.sql import functions as F

from penstock.engine.compile.spark_columns import column_fields, column_struct_references
from penstock.stream.sql.column_refs import StructReference, column_names
from penstock.stream.sql.dialect import SparkSql

TEMPLATES = [
    "{} > 1",
    "a + {}",
    "f(a, {}, b)",
    "{}.x = 1",
    "a.{} = 2",
    "{} IS NULL",
    "{} AS x",
    "CASE WHEN {} THEN 1 END",
]
#: A name that is always an operator, and functions without parentheses.
EXCLUDED = {
    "not",
    "current_date",
    "current_timestamp",
    "current_user",
    "session_user",
    "current_time",
    "localtimestamp",
}


def referenced(spark: SparkSession, text: str) -> set[str]:
    """The columns that Spark's parser finds in an expression."""
    parser = spark._jsparkSession.sessionState().sqlParser()
    return set(_attributes(parser.parseExpression(text)))


def _attributes(node: Any) -> Iterator[str]:
    if node.getClass().getSimpleName() == "UnresolvedAttribute":
        yield node.nameParts().apply(0)
    children = node.children()
    for index in range(children.size()):
        yield from _attributes(children.apply(index))


def test_every_keyword_can_name_a_column(spark: SparkSession) -> None:
    keywords = {word.lower() for word in SparkSql.Tokenizer.KEYWORDS if re.fullmatch(r"\w+", word)}
    for keyword in sorted(keywords - EXCLUDED):
        for template in TEMPLATES:
            text = template.format(keyword)
            assert referenced(spark, text) <= set(column_names(text)), text


def test_columns_of_spark_s_examples(spark: SparkSession) -> None:
    catalog = spark._jsparkSession.sessionState().catalog()
    identifiers = catalog.listFunctions("default", "*")
    examples = set()
    for index in range(identifiers.size()):
        description = catalog.lookupFunctionInfo(identifiers.apply(index)._1()).getExamples()
        examples |= {re.sub(r"'[^']*'", "col", text) for text in re.findall(r"> SELECT ([^;]*);", description)}
    expressions = [text for text in sorted(examples) if " FROM " not in text.upper() and "'" not in text]
    assert len(expressions) > 500
    checked = 0
    for text in expressions:
        try:
            expected = referenced(spark, text)
        except Exception:  # noqa: S112 - a literal in it cannot be a column
            continue
        checked += 1
        assert expected <= set(column_names(text)) | EXCLUDED, text
    assert checked > 300


COLUMNS: dict[str, tuple[Callable[[], Column], list[str]]] = {
    "comparison": (lambda: F.col("a") > 1, ["a"]),
    "struct": (lambda: F.col("a.b") == "it's x", ["a"]),
    "quoted name": (lambda: F.col("`we ird`.x") + F.col("b"), ["we ird", "b"]),
    "case": (lambda: F.when(F.col("a") > 1, "y").otherwise(F.col("b")).alias("z"), ["a", "b"]),
    "lambda": (lambda: F.transform("xs", lambda x: x + F.col("y")), ["xs", "y"]),
    "list": (lambda: F.col("a").isin("p", "q"), ["a"]),
    "element": (lambda: F.col("s")["k"], ["s"]),
    "SQL": (lambda: F.expr("p + q.r") * F.col("n"), ["p", "q", "n"]),
    "window": (lambda: F.sum("a").over(Window.partitionBy("b").orderBy("c")), ["a", "b", "c"]),
    "literal": (lambda: F.lit("foo bar"), []),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_fields_of_spark_columns(spark: SparkSession, name: str) -> None:
    make, fields = COLUMNS[name]
    assert column_fields(make()) == fields


def test_struct_references_of_spark_columns(spark: SparkSession) -> None:
    column = F.coalesce(F.col("left.price"), F.expr("left.total + right.x"), F.to_json("left"))
    assert column_struct_references(column, "left") == [
        StructReference(["price"], False),
        StructReference(["total"], False),
        StructReference([], False),
    ]
