"""What users compute, in SQL or with Spark Columns, on numbers that keep their digits.

Spark keeps 6 digits after the point of the product of two fields, and spells a 5 as 5.000000000000000000. What
``Exact.java`` makes of an expression before Spark looks at it keeps 18, and spells it 5. Spark comes with a compiler
for the code that it generates, and that one compiles it: there is nothing to install.
"""

from __future__ import annotations

import threading
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_lock = threading.Lock()
#: The compiled class, and the JVM that it is in.
_compiled: tuple[Any, Any] | None = None


def column(spark: SparkSession, expression: Any) -> Column:
    """SQL text, or a Column, as a Column whose arithmetic is exact."""
    from pyspark.sql import functions as F
    from pyspark.sql.classic.column import Column as ClassicColumn

    if isinstance(expression, str) and expression.isidentifier():
        return F.expr(expression)
    given = expression if isinstance(expression, str) else expression._jc
    return ClassicColumn(_exact(spark).column(spark._jsparkSession, given))


def select(frame: DataFrame, names: list[str], expression: Column) -> DataFrame:
    """Some columns as they are, and one that is computed, which has the name that Spark would give it."""
    plain = frame.select(*names, expression)
    return frame.select(*names, column(frame.sparkSession, expression)).toDF(*plain.columns)


def rows(spark: SparkSession, query: str) -> DataFrame:
    """What an SQL query gives, with exact arithmetic."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    return ClassicDataFrame(_exact(spark).rows(spark._jsparkSession, query), spark)


def _exact(spark: SparkSession) -> Any:
    """The compiled class, which a JVM needs once."""
    global _compiled
    jvm: Any = spark._jvm
    with _lock:
        if _compiled is None or _compiled[0] is not jvm:
            source = resources.files("penstock.engine.compile").joinpath("jvm", "Exact.java")
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader())
            compiler.cook(source.read_text(encoding="utf-8"))
            made = compiler.getClassLoader().loadClass("Exact").newInstance()
            _compiled = (jvm, made)
        return _compiled[1]
