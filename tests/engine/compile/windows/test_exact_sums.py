"""Sums of the longest decimals equal those of Python."""

from __future__ import annotations

import random
from decimal import Decimal, localcontext

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.engine.compile.windows.exact_sums import HIGH_SUFFIX, add_high_digits, exact_sum


@pytest.mark.parametrize("kind", [(38, 18), (38, 0), (38, 38), (38, 30), (29, 3), (28, 3), (10, 2)], ids=str)
def test_sums_are_exact_whatever_their_number_of_digits(spark: SparkSession, kind: tuple[int, int]) -> None:
    chance, (precision, scale) = random.Random(str(kind)), kind

    def number() -> Decimal | None:
        digits = chance.choice([1, precision // 2, precision, precision])
        unscaled = chance.choice([10**digits - 1, chance.randrange(10**digits)])
        signed = unscaled if chance.random() < 0.8 else -unscaled
        return chance.choice([*[Decimal(signed).scaleb(-scale)] * 9, None])

    with localcontext(prec=100):
        groups = {group: [number() for _ in range(300)] for group in ("a", "b")}
        groups |= {"none": [None, None], "small": [Decimal(1).scaleb(-scale)], "zero": [Decimal(0), Decimal(0)]}
        sums = {group: sum(filter(None, values), Decimal(0)) for group, values in groups.items()}
        expected = {**sums, "none": None}
    rows = [(group, value) for group, values in groups.items() for value in values]
    columns = [
        pa.array(column, type_)
        for column, type_ in zip(zip(*rows, strict=True), [pa.string(), pa.decimal128(*kind)], strict=True)
    ]
    frame = spark.createDataFrame(pa.table(columns, ["group", "value"]))
    low, high = exact_sum(F.col("value"), frame.schema["value"].dataType.simpleString())
    partials = [low.alias("sum"), *([] if high is None else [high.alias("sum" + HIGH_SUFFIX)])]
    table = frame.groupBy("group").agg(*partials).toArrow()

    found = dict(zip(table.column("group").to_pylist(), add_high_digits(table, "sum").to_pylist(), strict=True))
    assert found == expected
