"""Filter conditions that a worker evaluates with Arrow, with the same result as Spark."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc


class Predicate(Protocol):
    """A condition on the rows of a table."""

    def evaluate(self, table: pa.Table) -> Any:
        """True, false or null for each row, as in SQL."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares a field with a value of its type."""

    field: str
    #: The name of the Arrow function.
    operator: str
    value: Any
    type: pa.DataType

    def evaluate(self, table: pa.Table) -> Any:
        return getattr(pc, self.operator)(table.column(self.field), pa.scalar(self.value, self.type))


@dataclass(frozen=True, slots=True)
class IsTrue:
    """A boolean field."""

    field: str

    def evaluate(self, table: pa.Table) -> Any:
        return table.column(self.field)


@dataclass(frozen=True, slots=True)
class IsNull:
    field: str

    def evaluate(self, table: pa.Table) -> Any:
        return pc.is_null(table.column(self.field))


@dataclass(frozen=True, slots=True)
class InList:
    """True if a field is in a list of values. Not for doubles, which have two zeros."""

    field: str
    values: tuple[Any, ...]
    type: pa.DataType

    def evaluate(self, table: pa.Table) -> Any:
        column = table.column(self.field)
        is_member = pc.is_in(column, value_set=pa.array(self.values, self.type))
        return pc.if_else(pc.is_valid(column), is_member, pa.scalar(None, pa.bool_()))


@dataclass(frozen=True, slots=True)
class Negation:
    operand: Predicate

    def evaluate(self, table: pa.Table) -> Any:
        return pc.invert(self.operand.evaluate(table))


@dataclass(frozen=True, slots=True)
class BooleanCombination:
    """AND or OR of several conditions."""

    is_or: bool
    operands: tuple[Predicate, ...]

    def evaluate(self, table: pa.Table) -> Any:
        combine = pc.or_kleene if self.is_or else pc.and_kleene
        return reduce(combine, (operand.evaluate(table) for operand in self.operands))
