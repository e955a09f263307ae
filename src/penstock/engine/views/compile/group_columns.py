"""The columns by which an operator groups its rows: those of PARTITION BY."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from penstock.engine.state.runs import HASH
from penstock.engine.views.compile.spark_relation import SparkRelation, hash_of, quoted
from penstock.engine.views.operators.base import ROW_HASH


def group_columns(relation: SparkRelation, partition_by: Sequence[str]) -> tuple[DataFrame, tuple[str, ...]]:
    """The input of an operator over groups, and the columns of the group."""
    names, computed = [], []
    values = [relation.key_expression(sql, "PARTITION BY") for sql in partition_by]
    for number, (sql, value) in enumerate(zip(partition_by, values, strict=True)):
        name = plain_column_name(sql, relation)
        if name is None:
            name = f"__pt{number}"
            computed.append(value.alias(name))
        names.append(name)
    hashes = [hash_of(values).alias(HASH), hash_of([quoted(name) for name in relation.key]).alias(ROW_HASH)]
    return relation.select([*hashes, *computed, *map(quoted, relation.names)]).frame, tuple(names)


def plain_column_name(sql: str, relation: SparkRelation) -> str | None:
    """The name of the column that an expression consists of; None for other expressions, and for doubles.

    The value of a double may be -0.0 where the comparison needs 0.0.
    """
    name = sql[1:-1]
    if sql != f"`{name}`" or name not in relation.names:
        return None
    return None if relation.frame.schema[name].dataType.simpleString() in ("double", "float") else name
