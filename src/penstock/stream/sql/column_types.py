"""Spark's types in SQL text: one type, or a list of columns such as ``customer string, amount decimal(12,2)``."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import Token, TokenType, exp
from sqlglot.parsers.spark import SparkParser

from penstock.core.errors import InvalidSql, short_repr
from penstock.core.suggestions import closest_names
from penstock.stream.sql.dialect import SparkSql
from penstock.stream.sql.sql_source import SqlSource

_NESTED_TYPES = ("array", "map", "struct")
_TYPES = (
    *("string", "boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long"),
    *("float", "real", "double", "decimal", "dec", "numeric", "timestamp", "timestamp_ltz", "timestamp_ntz"),
    *("date", "binary", "varchar", "char", "variant", *_NESTED_TYPES),
)


class _SparkTypes(SparkSql):
    """The types of Spark. Other words are user-defined types, which Spark SQL does not have."""

    SUPPORTS_USER_DEFINED_TYPES = True

    class Tokenizer(SparkSql.Tokenizer):
        KEYWORDS: ClassVar = {
            word: kind
            for word, kind in SparkSql.Tokenizer.KEYWORDS.items()
            if kind not in SparkParser.TYPE_TOKENS or word.lower() in _TYPES
        }


def parse_type(text: str) -> exp.DataType | None:
    """Parse a type; None if it is not one of Spark's. Texts of one type, ``INTEGER`` and ``int``, give equal trees."""
    source = SqlSource(text, dialect=_SparkTypes)
    try:
        parsed = source.parse(source.tokenize(), exp.DataType)
    except InvalidSql:
        return None
    return parsed if isinstance(parsed, exp.DataType) and _find_type_problem(parsed) is None else None


def find_columns_problem(text: str) -> str | None:
    """Return what is wrong with a list of columns and their types; None if Spark can read it."""
    source = SqlSource(f"struct<{text}>", dialect=_SparkTypes)
    try:
        tokens = source.tokenize()
    except InvalidSql:
        return "a quote is not closed"
    try:
        parsed = source.parse(tokens, exp.DataType)
    except InvalidSql as error:
        return _explain(error, tokens)
    if tokens[-2].token_type is TokenType.COMMA:
        return "a field is missing at its end"
    return _find_type_problem(parsed)


def _find_type_problem(kind: Any) -> str | None:
    for field in kind.expressions if kind.this is exp.DType.STRUCT else []:
        if not isinstance(field, exp.ColumnDef):
            return f"the type of {short_repr(field.sql('spark'))} is missing"
        if not field.this.args.get("quoted") and not f"_{field.name}".isidentifier():
            return f"{short_repr(field.name)} is no name of a field"
    for part in kind.find_all(exp.DataType):
        if part.this is exp.DType.USERDEFINED:
            return _explain_unknown_type(part.sql("spark"))
        if part.this.name.lower() in _NESTED_TYPES and not part.expressions:
            return f"{part.this.name.lower()} takes types in angle brackets"
    for size in kind.find_all(exp.DataTypeParam):
        if not isinstance(size.this, exp.Literal):
            return f"{short_repr(size.sql('spark'))} is no number of digits"
    return None


def _explain(error: InvalidSql, tokens: list[Token]) -> str:
    """Return why columns cannot be read, with the word where sqlglot stopped."""
    rest = [token for token in tokens if token.start >= error.column - 1 and token.text[:1].isalpha()]
    return _explain_unknown_type(rest[0].text) if rest else "a type or a > is missing at its end"


def _explain_unknown_type(word: str) -> str:
    close = closest_names(word, _TYPES, cutoff=0.7)
    if not close:
        return f"{short_repr(word)} is not expected"
    return f"{short_repr(word)} is no type; did you mean {close[0]!r}?"
