"""Exact sums of decimals, of any number of digits.

Spark's decimals have at most 38 digits, and a sum that has more would fail the cycle. So Spark adds up the lowest 28
digits and the higher ones by themselves. The driver adds the two sums.
"""

from __future__ import annotations

import re
from decimal import Decimal, localcontext

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

#: Ends the name of the column with the sum of the higher digits.
HIGH_SUFFIX = "__high"
#: The sum of ten billion numbers with so many digits fits into a decimal.
_LOW_DIGITS = 28
_MAX_DIGITS = 38


def exact_sum(value: Column, spark_type: str) -> tuple[Column, Column | None]:
    """The sum of the low digits, and that of the higher ones, which is null if there are none."""
    precision, scale = map(int, re.findall(r"\d+", spark_type))
    if precision <= _LOW_DIGITS:
        return F.sum(value), None
    unit = F.lit(Decimal(1).scaleb(_LOW_DIGITS - scale))
    is_short = value.between(-unit, unit)
    low = value % unit
    high = ((value - low) / unit).cast("bigint")
    return F.sum(F.when(is_short, value).otherwise(low)), F.sum(F.when(~is_short, high))


def add_high_digits(table: pa.Table, name: str) -> pa.ChunkedArray:
    """The sums in a column, with their higher digits if there is a column of these."""
    low = table.column(name)
    high = table.column(name + HIGH_SUFFIX) if name + HIGH_SUFFIX in table.column_names else None
    if high is None or high.null_count == len(high):
        return low
    exponent, sums = _LOW_DIGITS - low.type.scale, []
    with localcontext(prec=2 * _MAX_DIGITS):
        for value, digits in zip(low.to_pylist(), high.to_pylist(), strict=True):
            sums.append(value if digits is None else value + Decimal(digits).scaleb(exponent))
    return pa.chunked_array([pa.array(sums, pa.decimal256(2 * _MAX_DIGITS, low.type.scale))])
