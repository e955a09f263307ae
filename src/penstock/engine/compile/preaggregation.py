"""Decides whether the tasks of a stream can pre-aggregate its events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.compile.predicate_parser import parse_field_list, parse_predicate
from penstock.engine.worker.preaggregate import MAX_DECIMAL_DIGITS, PartialColumn, Preaggregation
from penstock.stream.aggregates import WindowAggregate
from penstock.stream.definition import Definition
from penstock.stream.steps import FilterStep, MapStep
from penstock.stream.windows import TumblingWindow


def plan_preaggregation(stream: Definition, fields: pa.Schema, steps: Sequence[Any] = ()) -> Preaggregation | None:
    """Plan the pre-aggregation of a stream; None if Spark has to compute something.

    ``steps`` are the steps after the reader. Only filters on fields and renamed fields can be pre-aggregated.
    """
    if stream.fold is not None or len(stream.windows) != 1 or not isinstance(stream.windows[0], TumblingWindow):
        return None
    known: Mapping[str, pa.Field] = {field.name: field for field in fields}
    predicates: list[pc.Expression] = []
    for step in steps:
        match step:
            case FilterStep(condition=str(text)):
                predicate = parse_predicate(text, known)
                if predicate is None:
                    return None
                predicates.append(predicate)
            case MapStep(expression=str(text)):
                selected = parse_field_list(text, known)
                if selected is None:
                    return None
                known = selected
            case _:
                return None
    key: str | None = None
    if stream.key is not None:
        field = known.get(stream.key) if isinstance(stream.key, str) else None
        if field is None or field.type != pa.string():
            return None
        key = field.name
    columns: list[PartialColumn] = []
    for index, aggregate in enumerate(stream.aggregates.values()):
        partials = _partial_columns(f"a{index}", aggregate, known)
        if partials is None:
            return None
        columns += partials
    return Preaggregation(
        key,
        stream.windows[0].size_us,
        stream.time.grace_us,
        stream.time.late == "include",
        tuple(columns),
        tuple(predicates),
        stream.distinguishes_null_key,
    )


def _partial_columns(
    name: str, aggregate: WindowAggregate, fields: Mapping[str, pa.Field]
) -> list[PartialColumn] | None:
    """The columns of an aggregate, named like those that Spark would compute; None if its argument is not a number."""
    if aggregate.kind == "count" and aggregate.argument is None:
        return [PartialColumn(name, "sum", None, pa.int64())]
    if not isinstance(aggregate.argument, str) or aggregate.argument not in fields:
        return None
    field, kind = fields[aggregate.argument].name, fields[aggregate.argument].type
    if aggregate.kind == "count":
        return [PartialColumn(name, "sum", field, pa.int64(), counts_field=True)]
    if not (pa.types.is_decimal(kind) or pa.types.is_int64(kind) or pa.types.is_float64(kind)):
        return None
    sum_type = kind if pa.types.is_float64(kind) else pa.decimal128(MAX_DECIMAL_DIGITS, getattr(kind, "scale", 0))
    match aggregate.kind:
        case "sum":
            return [PartialColumn(name, "sum", field, sum_type)]
        case "avg":
            count = PartialColumn(f"{name}n", "sum", field, pa.int64(), counts_field=True)
            return [PartialColumn(name, "sum", field, sum_type), count]
        case "min" | "max":
            return [PartialColumn(name, aggregate.kind, field, kind)]
    return None
