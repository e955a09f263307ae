"""Converts values and keys to text in Spark, so that equal values have equal texts, and types to PostgreSQL's."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_TYPES = {
    "string": "text",
    "boolean": "boolean",
    "double": "double precision",
    "float": "double precision",
    "tinyint": "bigint",
    "smallint": "bigint",
    "int": "bigint",
    "bigint": "bigint",
    "timestamp": "timestamptz",
    "timestamp_ltz": "timestamptz",
    "date": "date",
}


def postgres_type(spark_type: str) -> str:
    if spark_type.startswith("decimal"):
        return "numeric"
    return _TYPES.get(spark_type, "jsonb")


def to_text(value: Column, spark_type: str) -> Column:
    if spark_type.startswith("decimal"):
        return _decimal_to_text(value)
    if spark_type in ("double", "float"):
        value = value + F.lit(0.0).cast(spark_type)  # -0.0 and 0.0 are equal
    return F.to_json(value) if postgres_type(spark_type) == "jsonb" else value.cast("string")


def columns_to_text(frame: DataFrame, columns: Sequence[Column]) -> list[Column]:
    schema = frame.select(*[column.alias(f"c{index}") for index, column in enumerate(columns)]).schema
    return [to_text(column, field.dataType.simpleString()) for column, field in zip(columns, schema, strict=True)]


def to_key(frame: DataFrame, columns: Sequence[Column]) -> Column:
    """One column as text, several as a JSON array."""

    texts = columns_to_text(frame, columns)
    return texts[0] if len(texts) == 1 else F.to_json(F.array(*texts))


def distinguish_empty_key(key: Column) -> Column:
    """Encode a key so that it is not '', which stands for no key: append two quotes to a key of only quotes."""

    quote = F.lit('"')
    return F.when(F.btrim(key, quote) == "", F.concat(key, quote, quote)).otherwise(key)


def _decimal_to_text(value: Column) -> Column:
    """A decimal without trailing zeros: 5 and 5.0 are equal."""

    trimmed = F.regexp_replace(F.regexp_replace(value.cast("string"), r"(\.[0-9]*?)0+$", "$1"), r"\.$", "")
    return F.when(value == 0, F.lit("0")).otherwise(trimmed)
