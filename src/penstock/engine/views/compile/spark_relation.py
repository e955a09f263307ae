"""The changes of one operator as a Spark DataFrame, and what all operators do with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType, VariantType

from penstock.core.errors import InvalidRequest
from penstock.engine.compile import exact_decimals
from penstock.engine.state.operator_state import WEIGHT

if TYPE_CHECKING:
    from penstock.engine.views.operators.base import ArrowFunction


@dataclass(frozen=True)
class SparkRelation:
    """The changes of an operator's rows. The frame has the columns, those of the key, and WEIGHT."""

    frame: DataFrame
    columns: tuple[str, ...]
    #: The columns that identify a row. Those that are not among ``columns`` are hidden.
    key: tuple[str, ...]
    #: True if all weights are 1.
    is_append_only: bool

    @property
    def spark(self) -> SparkSession:
        return self.frame.sparkSession

    @property
    def names(self) -> tuple[str, ...]:
        """The columns and the hidden ones."""
        return tuple(dict.fromkeys((*self.columns, *self.key)))

    def expression(self, sql: str) -> Column:
        """The value of an expression; null where it cannot be computed, since a later change may correct it."""
        return exact_decimals.try_column(self.spark, sql)

    def type_of(self, column: Column) -> DataType:
        return self.frame.select(column.alias("v")).schema["v"].dataType

    def key_expression(self, sql: str, purpose: str) -> Column:
        """An expression whose values are compared, such as a group or a join key."""
        return comparable(self.frame, self.expression(sql), f"{purpose} {sql}")

    def select(self, expressions: Iterable[Column]) -> SparkRelation:
        """The relation with another frame that has the weights too."""
        return replace(self, frame=self.frame.select(*expressions, quoted(WEIGHT)))

    def rename_hidden(self, names: dict[str, str]) -> SparkRelation:
        """Give hidden columns of the key other names."""
        columns = [quoted(name).alias(names.get(name, name)) for name in self.names]
        return replace(self.select(columns), key=tuple(names.get(name, name) for name in self.key))


def quoted(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def hash_of(values: Sequence[Column]) -> Column:
    return F.xxhash64(*values) if values else F.lit(0).cast("bigint")


def comparable(frame: DataFrame, column: Column, description: str) -> Column:
    """The column with -0.0 as 0.0, which SQL compares as equal. Refuses types without equality or order."""
    kind = frame.select(column.alias("v")).schema["v"].dataType
    if isinstance(kind, ArrayType | StructType | MapType | VariantType):
        raise InvalidRequest(
            f"{description} has the type {kind.simpleString()}, which cannot be compared: use one of its fields or "
            "elements, or to_json() of it"
        )
    if isinstance(kind, DoubleType | FloatType):
        return F.when(column == 0, F.lit(0).cast(kind)).otherwise(column)
    return column


def exchange_once(frame: DataFrame, tasks: int, key: Sequence[str]) -> DataFrame:
    """Exchange rows in a way that is the same for all uses of the frame, so that Spark does it once.

    The filter passes all rows. Spark does not push it below the exchange, since it is not deterministic, and needs all
    columns for it. Otherwise each use would exchange other columns.
    """
    rows = frame.repartition(tasks, *map(quoted, key)) if key else frame.repartition(1)
    hashed = [quoted(f.name) if _has_hash(f.dataType) else quoted(f.name).isNull() for f in frame.schema]
    return rows.filter((F.spark_partition_id() >= 0) | (F.xxhash64(*hashed) == 0))


def _has_hash(kind: DataType) -> bool:
    """False for maps, and for values that contain one."""
    match kind:
        case MapType() | VariantType():
            return False
        case ArrayType(elementType=element):
            return _has_hash(element)
        case StructType(fields=fields):
            return all(_has_hash(field.dataType) for field in fields)
    return True


def arrow_schema(frame: DataFrame) -> pa.Schema:
    return to_arrow_schema(frame.schema, timezone="UTC")


def nullable_fields(schema: pa.Schema, names: Iterable[str]) -> list[pa.Field]:
    return [schema.field(name).with_nullable(True) for name in names]


def apply_function(frame: DataFrame, function: ArrowFunction) -> DataFrame:
    """Apply a function, which names the schema of its output.

    PySpark cannot apply one to columns with a dot in their name, so they have other names in Spark meanwhile.
    """
    names, output = frame.columns, function.output_schema
    renamed = frame.toDF(*(f"c{number}" for number in range(len(names))))
    fields = [field.with_name(f"c{number}") for number, field in enumerate(output)]
    applied = renamed.mapInArrow(_Renaming(function, tuple(names)), from_arrow_schema(pa.schema(fields)))
    return applied.toDF(*output.names)


@dataclass(frozen=True)
class _Renaming:
    """Gives the columns their names for a function, and numbers them again for Spark."""

    function: ArrowFunction
    names: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in self.function(batch.rename_columns(list(self.names)) for batch in batches):
            yield batch.rename_columns([f"c{number}" for number in range(batch.num_columns)])


class HiddenNames:
    """Unique names for hidden columns of a plan."""

    def __init__(self) -> None:
        self._count = 0

    def next(self) -> str:
        self._count += 1
        return f"__k{self._count}"
