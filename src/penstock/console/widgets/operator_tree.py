"""Diagram of a view: its operators from the inputs to the result, with the rows and bytes that they keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from penstock.console.page import url_for
from penstock.console.widgets.elements import element
from penstock.console.widgets.tables import LiveHtml, render_link
from penstock.core import formatting
from penstock.engine.views.operator_graph import OperatorNode
from penstock.engine.views.view_size import OperatorSize


@dataclass(frozen=True, slots=True)
class ResultNode:
    """The table at the end of the diagram."""

    name: str
    rows: int
    bytes: int


class OperatorTree:
    def __init__(self) -> None:
        label = "Operators, inputs first"
        with element("div", "ps-scroll ps-plan-scroll", tabindex="0", role="region", aria_label=label):
            # _TreeRenderer escapes all values.
            self._html = LiveHtml()

    def show(
        self,
        nodes: Sequence[OperatorNode],
        sizes: Sequence[OperatorSize] | None = None,
        lags: Mapping[str, int] | None = None,
        result: ResultNode | None = None,
    ) -> None:
        """Draw the operators, inputs first. The last one makes the result. ``sizes`` has the operators with state."""
        by_number = None if sizes is None else {size.operator: size for size in sizes}
        renderer = _TreeRenderer(nodes, by_number, lags or {})
        html = renderer.render(len(nodes) - 1) if nodes else ""
        if result is not None:
            html = _join([html] if html else [], _render_result(result))
        self._html.set_content(html)


class _TreeRenderer:
    def __init__(
        self, nodes: Sequence[OperatorNode], sizes: Mapping[int, OperatorSize] | None, lags: Mapping[str, int]
    ) -> None:
        self._nodes = nodes
        self._sizes = sizes
        self._lags = lags
        self._drawn: set[int] = set()

    def render(self, position: int) -> str:
        """Return an operator with its inputs. One whose result is used twice has its inputs the first time only."""
        node = self._nodes[position]
        if position in self._drawn and node.inputs:
            return _join([], _render_node(node.kind, "", "the same as above", node.detail))
        self._drawn.add(position)
        return _join([self.render(source) for source in node.inputs], self._render_operator(node))

    def _render_operator(self, node: OperatorNode) -> str:
        # Columns are in backquotes, which say little in a diagram.
        detail = node.detail.replace("`", "")
        if node.kind == "queue":
            lag = self._lags.get(node.name)
            notes = [] if lag is None else [f"{formatting.compact(lag)} to read"]
            link = render_link(node.name, url_for("/queues", queue=node.name))
            return _render_node("queue", link, "; ".join(notes), detail, "ps-flow-queue")
        if node.kind == "view":
            return _render_node(
                "view", render_link(node.name, url_for("/views", view=node.name)), "", detail, "ps-flow-queue"
            )
        note = ""
        if node.states and self._sizes is not None:
            kept = [self._sizes[number] for number in node.states if number in self._sizes]
            rows = formatting.counted(sum(size.rows for size in kept), "row")
            note = f"{rows}, {formatting.size(sum(size.bytes for size in kept))}"
        return _render_node(node.kind, escape(detail), note, detail)


def _render_result(result: ResultNode) -> str:
    note = f"{formatting.counted(result.rows, 'row')}, {formatting.size(result.bytes)}"
    return _render_node("result", escape(result.name), note, "", "ps-flow-queue")


def _render_node(kind: str, label: str, note: str, title: str, classes: str = "") -> str:
    small = f'<span class="ps-muted ps-small">{escape(note)}</span>' if note else ""
    text = f'<span class="ps-flow-label">{label}</span>' if label else ""
    return (
        f'<div class="ps-flow-node {classes}" title="{escape(title)}"><span class="ps-flow-kind">{escape(kind)}</span>'
        f"{text}{small}</div>"
    )


def _join(inputs: Sequence[str], node: str) -> str:
    if not inputs:
        return node
    sources = "".join(f'<div class="ps-plan-input">{source}</div>' for source in inputs)
    return f'<div class="ps-plan"><div class="ps-plan-inputs">{sources}</div>{node}</div>'
