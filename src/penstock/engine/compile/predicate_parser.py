"""Parses conditions and select lists that workers can evaluate with Arrow instead of Spark.

A condition compares fields with literals of their types, tests for null, and combines these with AND, OR and NOT.
Everything that needs a cast, a function or arithmetic is left to Spark.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from penstock.core.errors import InvalidSql
from penstock.stream.sql.expression_parser import parse_expression, parse_select
from penstock.stream.sql.sql_text import has_plain_literals

_COMPARISONS: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
}
_NUMBER = re.compile(r"\d+(\.\d+)?")
#: The digits that every double holds exactly, and every 64-bit integer.
_DOUBLE_DIGITS, _INTEGER_DIGITS = 15, 18

#: Fields by name.
_Fields = Mapping[str, pa.Field]


class _NotSupported(Exception):
    """Spark might evaluate this part differently."""


def parse_predicate(text: str, fields: _Fields) -> pc.Expression | None:
    """Parse a condition; None if Spark might evaluate it differently."""
    try:
        return _parse_node(_parse(text, parse_expression), fields)
    except (_NotSupported, RecursionError):
        return None


def parse_field_list(text: str, fields: _Fields) -> dict[str, pa.Field] | None:
    """Parse a select list that only renames fields: the fields by their new names. None for any other list."""
    try:
        tree = _parse(text, parse_select)
        selected = {item.alias_or_name: _find_field(item.unalias(), fields) for item in tree.expressions}
    except _NotSupported:
        return None
    has_other_clauses = {name for name, part in tree.args.items() if part} != {"expressions"}
    return None if has_other_clauses or len(selected) < len(tree.expressions) else selected


def _parse(text: str, parse: Callable[[str], exp.Expr]) -> exp.Expr:
    if not has_plain_literals(text):
        raise _NotSupported
    try:
        return parse(text)
    except InvalidSql:
        raise _NotSupported from None


def _parse_node(node: Any, fields: _Fields) -> pc.Expression:
    match node:
        case exp.Paren():
            return _parse_node(node.this, fields)
        case exp.Not():
            return ~_parse_node(node.this, fields)
        case exp.And() | exp.Or():
            combine = operator.or_ if isinstance(node, exp.Or) else operator.and_
            return reduce(combine, [_parse_node(operand, fields) for operand in node.flatten(unnest=False)])
        case exp.Is(expression=exp.Null()):
            return pc.field(_find_field(node.this, fields).name).is_null()
        case exp.In(expressions=[_, *_]) if not node.args.get("query"):
            return _parse_in(node, fields)
        case exp.Between() if not node.args.get("symmetric"):
            low = _parse_comparison(operator.ge, node.this, node.args["low"], fields)
            return low & _parse_comparison(operator.le, node.this, node.args["high"], fields)
        case exp.Column() if (field := _find_field(node, fields)).type == pa.bool_():
            return pc.field(field.name)
        case exp.Expr() if type(node) in _COMPARISONS:
            return _parse_comparison(_COMPARISONS[type(node)], node.this, node.expression, fields)
    raise _NotSupported


def _parse_in(node: Any, fields: _Fields) -> pc.Expression:
    field = _find_field(node.this, fields)
    column, values = pc.field(field.name), [_parse_literal(item, field.type) for item in node.expressions]
    if pa.types.is_float64(field.type):
        # Arrow's is_in distinguishes the two zeros of doubles.
        return reduce(operator.or_, [column == value for value in values])
    is_member = pc.is_in(column, value_set=pa.array(values, field.type))
    return pc.if_else(column.is_valid(), is_member, pa.scalar(None, pa.bool_()))


def _parse_comparison(compare: Callable[[Any, Any], Any], left: Any, right: Any, fields: _Fields) -> pc.Expression:
    if isinstance(left, exp.Column):
        field = _find_field(left, fields)
        return compare(pc.field(field.name), _to_scalar(right, field.type))
    field = _find_field(right, fields)
    return compare(_to_scalar(left, field.type), pc.field(field.name))


def _find_field(node: Any, fields: _Fields) -> pa.Field:
    """The field that a node consists of."""
    is_name = isinstance(node, exp.Column) and len(node.parts) == 1 and isinstance(node.this, exp.Identifier)
    if not is_name or node.name not in fields:
        raise _NotSupported
    return fields[node.name]


def _to_scalar(node: Any, kind: pa.DataType) -> pc.Expression:
    return pc.scalar(pa.scalar(_parse_literal(node, kind), kind))


def _parse_literal(node: Any, kind: pa.DataType) -> Any:
    """A literal as a value of a field's type. Not supported if Spark would cast one of them to compare them."""
    if isinstance(node, exp.Boolean) and pa.types.is_boolean(kind):
        return bool(node.this)
    is_negative = isinstance(node, exp.Neg)
    if is_negative:
        node = node.this
    if type(node) is exp.Literal and node.is_string and not is_negative and pa.types.is_string(kind):
        return str(node.this)
    literal = _NUMBER.fullmatch(str(node.this)) if type(node) is exp.Literal and not node.is_string else None
    if literal is None:
        raise _NotSupported
    return _parse_number(literal, is_negative, kind)


def _parse_number(literal: re.Match[str], is_negative: bool, kind: pa.DataType) -> Any:
    number = Decimal(f"-{literal[0]}" if is_negative else literal[0])
    decimals = len(literal[1] or ".") - 1
    integer_digits = len(literal[0]) - decimals - bool(literal[1])
    # For more digits than the type has, Spark would round the field.
    if pa.types.is_decimal128(kind) and integer_digits <= kind.precision - kind.scale and decimals <= kind.scale:
        return number
    if pa.types.is_int64(kind) and not decimals and integer_digits <= _INTEGER_DIGITS:
        return int(number)
    if pa.types.is_float64(kind) and integer_digits + decimals <= _DOUBLE_DIGITS:
        return float(number)
    raise _NotSupported
