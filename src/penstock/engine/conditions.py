"""Conditions and select lists that Arrow takes to mean exactly what Spark does, so that a worker can do without Spark.

A condition compares plain fields with literals of their types, asks whether they are null, and says and, or, not. All
that needs a cast, a function or arithmetic is Spark's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

#: Comparisons by their names in sqlglot and in Arrow, and what each is when its sides change places.
_COMPARISONS = {
    "EQ": ("equal", "equal"),
    "NEQ": ("not_equal", "not_equal"),
    "GT": ("greater", "less"),
    "GTE": ("greater_equal", "less_equal"),
    "LT": ("less", "greater"),
    "LTE": ("less_equal", "greater_equal"),
}
#: What is spelled in a way that readers of SQL differ about.
_ODD = re.compile(r"""["\\]|''|--|/\*""")
_NUMBER = re.compile(r"\d+(\.\d+)?")
#: Digits that a double holds, and that an integer does.
_DOUBLE_DIGITS, _WHOLE_DIGITS = 15, 18

#: Fields by the names that they go under.
_Fields = Mapping[str, pa.Field]


class Condition(Protocol):
    """Something that holds for a row, or does not, or is null, as in SQL."""

    def of(self, table: pa.Table) -> Any:
        """Whether it holds for each row."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A field, held against a value of its type."""

    field: str
    how: str
    value: Any
    type: pa.DataType

    def of(self, table: pa.Table) -> Any:
        """Null where the field is."""
        return getattr(pc, self.how)(table.column(self.field), pa.scalar(self.value, self.type))


@dataclass(frozen=True, slots=True)
class Holds:
    """A field that is true or false."""

    field: str

    def of(self, table: pa.Table) -> Any:
        """Null where the field is."""
        return table.column(self.field)


@dataclass(frozen=True, slots=True)
class Missing:
    """A field that is null."""

    field: str

    def of(self, table: pa.Table) -> Any:
        """Never null."""
        return pc.is_null(table.column(self.field))


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite."""

    inner: Condition

    def of(self, table: pa.Table) -> Any:
        """Null where the other is."""
        return pc.invert(self.inner.of(table))


@dataclass(frozen=True, slots=True)
class Both:
    """One and the other, or one or the other."""

    either: bool
    left: Condition
    right: Condition

    def of(self, table: pa.Table) -> Any:
        """Null where it depends on something that is."""
        join = pc.or_kleene if self.either else pc.and_kleene
        return join(self.left.of(table), self.right.of(table))


def condition_of(text: str, fields: _Fields) -> Condition | None:
    """SQL as a condition on fields, or None where that might not be what Spark makes of it."""
    tree = _parsed(text)
    return None if tree is None else _condition(tree, fields)


def selected(text: str, fields: _Fields) -> dict[str, pa.Field] | None:
    """The fields of a select list by their new names, or None if it has anything else."""
    from sqlglot import exp

    tree = _parsed(f"SELECT {text} FROM stream")  # noqa: S608 - only read
    if not isinstance(tree, exp.Select) or {name for name, part in tree.args.items() if part} != {
        "expressions",
        "from_",
    }:
        return None
    found: dict[str, pa.Field] = {}
    for item in tree.expressions:
        field = _field(item.unalias(), fields)
        name = item.alias_or_name
        if field is None or name in found:
            return None
        found[name] = field
    return found


def _parsed(text: str) -> Any:
    import sqlglot
    from sqlglot.errors import SqlglotError

    if _ODD.search(text):
        return None
    try:
        return sqlglot.parse_one(text, read="spark")
    except SqlglotError:
        return None


def _condition(node: Any, fields: _Fields) -> Condition | None:
    from sqlglot import exp

    match node:
        case exp.Paren():
            return _condition(node.this, fields)
        case exp.Not():
            inner = _condition(node.this, fields)
            return None if inner is None else Not(inner)
        case exp.And() | exp.Or():
            return _both(isinstance(node, exp.Or), _condition(node.left, fields), _condition(node.right, fields))
        case exp.Is(expression=exp.Null()):
            field = _field(node.this, fields)
            return None if field is None else Missing(field.name)
        case exp.In(expressions=[_, *_]) if not node.args.get("query"):
            return _any_of([_compared("EQ", node.this, item, fields) for item in node.expressions])
        case exp.Between() if not node.args.get("symmetric"):
            low = _compared("GTE", node.this, node.args["low"], fields)
            return _both(False, low, _compared("LTE", node.this, node.args["high"], fields))
        case exp.Column():
            field = _field(node, fields)
            return Holds(field.name) if field is not None and field.type == pa.bool_() else None
    name = type(node).__name__
    return _compared(name, node.this, node.expression, fields) if name in _COMPARISONS else None


def _both(either: bool, left: Condition | None, right: Condition | None) -> Condition | None:
    return None if left is None or right is None else Both(either, left, right)


def _any_of(some: list[Condition | None]) -> Condition | None:
    found = some[0]
    for one in some[1:]:
        found = _both(True, found, one)
    return found


def _compared(name: str, left: Any, right: Any, fields: _Fields) -> Condition | None:
    how, turned = _COMPARISONS[name]
    field = _field(left, fields)
    if field is None:
        field, right, how = _field(right, fields), left, turned
    if field is None:
        return None
    value = _value(right, field.type)
    return None if value is None else Compared(field.name, how, value, field.type)


def _field(node: Any, fields: _Fields) -> pa.Field | None:
    """The field, if it is one and nothing else."""
    from sqlglot import exp

    if not isinstance(node, exp.Column) or len(node.parts) != 1 or not isinstance(node.this, exp.Identifier):
        return None
    return fields.get(node.name)


def _value(node: Any, kind: pa.DataType) -> Any:
    """A literal as a value of a field's type; None if Spark would not compare the two by what they are."""
    from sqlglot import exp

    if isinstance(node, exp.Boolean):
        return bool(node.this) if pa.types.is_boolean(kind) else None
    negative = isinstance(node, exp.Neg)
    if negative:
        node = node.this
    if type(node) is not exp.Literal:
        return None
    if node.is_string:
        return str(node.this) if pa.types.is_string(kind) and not negative else None
    found = _NUMBER.fullmatch(str(node.this))
    if found is None:
        return None
    number = Decimal(f"-{found[0]}" if negative else found[0])
    after = len(found[1] or ".") - 1
    before = len(found[0]) - after - bool(found[1])
    if pa.types.is_decimal128(kind):
        # With more digits, Spark would round the field.
        return number if before <= kind.precision - kind.scale and after <= kind.scale else None
    if pa.types.is_int64(kind):
        return int(number) if not after and before <= _WHOLE_DIGITS else None
    if pa.types.is_float64(kind):
        return float(number) if before + after <= _DOUBLE_DIGITS else None
    return None
