"""Replaces the inputs of an operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.stream.views.view_plan import Join, Operator, QueueSource, ReferenceSource, UnionAll, ViewSource


def map_inputs(operator: Operator, change: Callable[[Operator], Operator]) -> Operator:
    """Return an operator whose inputs are changed."""
    match operator:
        case QueueSource() | ViewSource() | ReferenceSource():
            return operator
        case UnionAll(inputs=inputs):
            return UnionAll(tuple(map(change, inputs)))
        case Join(left=left, right=right):
            return replace(operator, left=change(left), right=change(right))
        case _:
            return replace(operator, input=change(operator.input))
