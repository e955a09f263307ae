"""Spark's SQL with Flink's table functions TUMBLE and HOP, for statements of materialized views.

No function is interpreted: sqlglot prints some functions in a form that Spark computes differently.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import TokenType

from penstock.stream.sql.dialect import TABLE_FUNCTIONS, SparkSql


class ViewSql(SparkSql):
    """Parses ``FROM TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND)`` as well."""

    class Parser(SparkSql.Parser):
        FUNC_TOKENS: ClassVar = {*SparkSql.Parser.FUNC_TOKENS, TokenType.SESSION}
        FUNCTION_PARSERS: ClassVar = {
            **SparkSql.Parser.FUNCTION_PARSERS,
            **TABLE_FUNCTIONS,
        }
