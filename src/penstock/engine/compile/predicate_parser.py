"""Parses conditions and select lists that workers can evaluate with Arrow instead of Spark.

A condition compares fields with literals of their types, tests for null, and combines these with AND, OR and NOT.
Everything that needs a cast, a function or arithmetic is left to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp

from penstock.core.errors import InvalidSql
from penstock.engine.worker.predicates import (
    BooleanCombination,
    Comparison,
    InList,
    IsNull,
    IsTrue,
    Negation,
    Predicate,
)
from penstock.stream.sql.parser import parse_expression, parse_select
from penstock.stream.sql.text import has_plain_literals

#: By the name of the sqlglot class: the Arrow function, and the one for swapped operands.
_COMPARISONS = {
    "EQ": ("equal", "equal"),
    "NEQ": ("not_equal", "not_equal"),
    "GT": ("greater", "less"),
    "GTE": ("greater_equal", "less_equal"),
    "LT": ("less", "greater"),
    "LTE": ("less_equal", "greater_equal"),
}
_NUMBER = re.compile(r"\d+(\.\d+)?")
#: The digits that every double holds exactly, and every 64-bit integer.
_DOUBLE_DIGITS, _INTEGER_DIGITS = 15, 18

#: Fields by name.
_Fields = Mapping[str, pa.Field]


def parse_predicate(text: str, fields: _Fields) -> Predicate | None:
    """Parse a condition; None if Spark might evaluate it differently."""
    tree = _parse(text, parse_expression)
    try:
        return None if tree is None else _parse_node(tree, fields)
    except RecursionError:
        return None


def parse_field_list(text: str, fields: _Fields) -> dict[str, pa.Field] | None:
    """Parse a select list that only renames fields: the fields by their new names. None for any other list."""
    tree = _parse(text, parse_select)
    if tree is None or {name for name, part in tree.args.items() if part} != {"expressions"}:
        return None
    selected: dict[str, pa.Field] = {}
    for item in tree.expressions:
        field = _find_field(item.unalias(), fields)
        name = item.alias_or_name
        if field is None or name in selected:
            return None
        selected[name] = field
    return selected


def _parse(text: str, parse: Callable[[str], exp.Expr]) -> exp.Expr | None:
    try:
        return parse(text) if has_plain_literals(text) else None
    except InvalidSql:
        return None


def _parse_node(node: Any, fields: _Fields) -> Predicate | None:
    match node:
        case exp.Paren():
            return _parse_node(node.this, fields)
        case exp.Not():
            operand = _parse_node(node.this, fields)
            return None if operand is None else Negation(operand)
        case exp.And() | exp.Or():
            operands = [_parse_node(operand, fields) for operand in node.flatten(unnest=False)]
            return _combine(isinstance(node, exp.Or), operands)
        case exp.Is(expression=exp.Null()):
            field = _find_field(node.this, fields)
            return None if field is None else IsNull(field.name)
        case exp.In(expressions=[_, *_]) if not node.args.get("query"):
            return _parse_in(node, fields)
        case exp.Between() if not node.args.get("symmetric"):
            low = _parse_comparison("GTE", node.this, node.args["low"], fields)
            return _combine(False, [low, _parse_comparison("LTE", node.this, node.args["high"], fields)])
        case exp.Column():
            field = _find_field(node, fields)
            return IsTrue(field.name) if field is not None and field.type == pa.bool_() else None
    name = type(node).__name__
    return _parse_comparison(name, node.this, node.expression, fields) if name in _COMPARISONS else None


def _combine(is_or: bool, operands: Sequence[Predicate | None]) -> Predicate | None:
    known = [operand for operand in operands if operand is not None]
    return BooleanCombination(is_or, tuple(known)) if len(known) == len(operands) else None


def _parse_in(node: Any, fields: _Fields) -> Predicate | None:
    field = _find_field(node.this, fields)
    if field is None:
        return None
    values = [_parse_literal(item, field.type) for item in node.expressions]
    if any(value is None for value in values):
        return None
    if pa.types.is_float64(field.type):
        comparisons = [Comparison(field.name, "equal", value, field.type) for value in values]
        return BooleanCombination(True, tuple(comparisons))
    return InList(field.name, tuple(values), field.type)


def _parse_comparison(name: str, left: Any, right: Any, fields: _Fields) -> Predicate | None:
    operator, swapped = _COMPARISONS[name]
    field = _find_field(left, fields)
    if field is None:
        field, right, operator = _find_field(right, fields), left, swapped
    if field is None:
        return None
    value = _parse_literal(right, field.type)
    return None if value is None else Comparison(field.name, operator, value, field.type)


def _find_field(node: Any, fields: _Fields) -> pa.Field | None:
    """The field if the node is an unqualified field."""
    if not isinstance(node, exp.Column) or len(node.parts) != 1 or not isinstance(node.this, exp.Identifier):
        return None
    return fields.get(node.name)


def _parse_literal(node: Any, kind: pa.DataType) -> Any:
    """A literal as a value of a field's type; None if Spark would cast one of them to compare them."""
    if isinstance(node, exp.Boolean):
        return bool(node.this) if pa.types.is_boolean(kind) else None
    is_negative = isinstance(node, exp.Neg)
    if is_negative:
        node = node.this
    if type(node) is not exp.Literal:
        return None
    if node.is_string:
        return str(node.this) if pa.types.is_string(kind) and not is_negative else None
    literal = _NUMBER.fullmatch(str(node.this))
    return None if literal is None else _parse_number(literal, is_negative, kind)


def _parse_number(literal: re.Match[str], is_negative: bool, kind: pa.DataType) -> Any:
    number = Decimal(f"-{literal[0]}" if is_negative else literal[0])
    decimals = len(literal[1] or ".") - 1
    integer_digits = len(literal[0]) - decimals - bool(literal[1])
    if pa.types.is_decimal128(kind):
        # For more digits, Spark would round the field.
        return number if integer_digits <= kind.precision - kind.scale and decimals <= kind.scale else None
    if pa.types.is_int64(kind):
        return int(number) if not decimals and integer_digits <= _INTEGER_DIGITS else None
    if pa.types.is_float64(kind):
        return float(number) if integer_digits + decimals <= _DOUBLE_DIGITS else None
    return None
