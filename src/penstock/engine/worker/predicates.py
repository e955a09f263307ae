"""Conditions and select lists that Arrow takes to mean exactly what Spark does, so that a worker can do without Spark.

A condition compares plain fields with literals of their types, asks whether they are null, and says and, or, not. All
that needs a cast, a function or arithmetic is Spark's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
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
_ODD = re.compile(r"""["\\$]|''|--|/\*""")
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
class Among:
    """A field that is one of some values, which are no doubles: those have two zeros."""

    field: str
    values: tuple[Any, ...]
    type: pa.DataType

    def of(self, table: pa.Table) -> Any:
        """Null where the field is."""
        column = table.column(self.field)
        found = pc.is_in(column, value_set=pa.array(self.values, self.type))
        return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))


@dataclass(frozen=True, slots=True)
class Several:
    """All of them, or any of them."""

    any_of: bool
    parts: tuple[Condition, ...]

    def of(self, table: pa.Table) -> Any:
        """Null where it depends on something that is."""
        return reduce(pc.or_kleene if self.any_of else pc.and_kleene, (part.of(table) for part in self.parts))


def condition_of(text: str, fields: _Fields) -> Condition | None:
    """SQL as a condition on fields, or None where that might not be what Spark makes of it."""
    tree = _parsed(text)
    try:
        return None if tree is None else _condition(tree, fields)
    except RecursionError:
        return None


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
    except (SqlglotError, RecursionError):
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
            parts = [_condition(part, fields) for part in node.flatten(unnest=False)]
            return _several(isinstance(node, exp.Or), parts)
        case exp.Is(expression=exp.Null()):
            field = _field(node.this, fields)
            return None if field is None else Missing(field.name)
        case exp.In(expressions=[_, *_]) if not node.args.get("query"):
            return _among(node, fields)
        case exp.Between() if not node.args.get("symmetric"):
            low = _compared("GTE", node.this, node.args["low"], fields)
            return _several(False, [low, _compared("LTE", node.this, node.args["high"], fields)])
        case exp.Column():
            field = _field(node, fields)
            return Holds(field.name) if field is not None and field.type == pa.bool_() else None
    name = type(node).__name__
    return _compared(name, node.this, node.expression, fields) if name in _COMPARISONS else None


def _several(any_of: bool, parts: Sequence[Condition | None]) -> Condition | None:
    known = [part for part in parts if part is not None]
    return Several(any_of, tuple(known)) if len(known) == len(parts) else None


def _among(node: Any, fields: _Fields) -> Condition | None:
    field = _field(node.this, fields)
    if field is None:
        return None
    values = [_value(item, field.type) for item in node.expressions]
    if any(value is None for value in values):
        return None
    if pa.types.is_float64(field.type):
        return Several(True, tuple(Compared(field.name, "equal", value, field.type) for value in values))
    return Among(field.name, tuple(values), field.type)


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
