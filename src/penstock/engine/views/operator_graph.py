"""The operators of a view as a graph that is stored with the query, for the console. Needs no Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from penstock.stream.views.describe import describe_operator
from penstock.stream.views.view_plan import NamedExpression, Operator, Project, inputs_of, walk


@dataclass(frozen=True, slots=True)
class OperatorNode:
    """An operator of a view. Equal operators are one node."""

    #: ``queue``, ``view``, ``filter``, ``aggregate``, ``left join`` and so on.
    kind: str
    #: The queue or the view that it reads.
    name: str
    detail: str
    #: The positions of its inputs among the nodes.
    inputs: tuple[int, ...]
    #: The numbers of its state. Most operators with state have one.
    states: tuple[int, ...] = ()


def operator_graph(root: Operator, stateful: Mapping[int, Operator] | None = None) -> list[OperatorNode]:
    """Return the operators of a plan, inputs first. ``stateful`` has the operators by the number of their state.

    Those that only pass columns on are left out.
    """
    positions: dict[Operator, int] = {}
    nodes: list[OperatorNode] = []
    for operator in dict.fromkeys(walk(root)):
        inputs = tuple(positions[each] for each in inputs_of(operator))
        if isinstance(operator, Project) and operator != root and all(map(_is_passed_on, operator.columns)):
            positions[operator] = inputs[0]
            continue
        states = tuple(number for number, each in (stateful or {}).items() if each == operator)
        text = describe_operator(operator)
        positions[operator] = len(nodes)
        nodes.append(OperatorNode(text.kind, text.name, _detail(operator), inputs, states))
    return nodes


def _is_passed_on(column: NamedExpression) -> bool:
    return column.sql == f"`{column.name}`"


def _detail(operator: Operator) -> str:
    if isinstance(operator, Project):
        return ", ".join(
            column.sql if _is_passed_on(column) else f"{column.sql} AS {column.name}" for column in operator.columns
        )
    return describe_operator(operator).detail or ""


def graph_to_json(nodes: Sequence[OperatorNode]) -> list[dict[str, Any]]:
    return [asdict(node) for node in nodes]


def graph_from_json(stored: Sequence[Mapping[str, Any]]) -> list[OperatorNode]:
    return [
        OperatorNode(node["kind"], node["name"], node["detail"], tuple(node["inputs"]), tuple(node["states"]))
        for node in stored
    ]
