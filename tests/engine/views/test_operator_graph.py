"""The stored graph of a view's operators."""

from __future__ import annotations

import json

from penstock.engine.views.operator_graph import OperatorNode, graph_from_json, graph_to_json, operator_graph
from penstock.stream.views.view_plan import Aggregate, Join, QueueSource, SourceColumn, UnionAll, walk
from tests.engine.views.statements import make_views


def test_inputs_come_before_the_operators_that_read_them() -> None:
    statement = (
        "SELECT o.customer, sum(p.paid) AS paid FROM orders o JOIN payments p ON p.order_id = o.id GROUP BY o.customer"
    )
    ((stream, _),) = make_views(f"CREATE MATERIALIZED VIEW v AS {statement}").values()
    assert stream.view is not None
    with_state = [each for each in walk(stream.view.root) if isinstance(each, Join | Aggregate)]
    nodes = operator_graph(stream.view.root, dict(enumerate(with_state, 1)))
    assert all(source < position for position, node in enumerate(nodes) for source in node.inputs)
    assert [node.name for node in nodes if node.kind == "queue"] == ["orders", "payments"]
    assert {node.kind: node.states for node in nodes if node.states} == {"inner join": (1,), "aggregate": (2,)}
    assert graph_from_json(json.loads(json.dumps(graph_to_json(nodes)))) == nodes


def test_equal_operators_are_one_node() -> None:
    source = QueueSource("orders", (SourceColumn("id", "id"),))
    assert operator_graph(UnionAll((source, source))) == [
        OperatorNode("queue", "orders", "id", ()),
        OperatorNode("union all", "", "", (0, 0)),
    ]
