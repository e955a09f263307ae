"""Diagram of a query: source queues, steps, sink queue, and the rates between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from penstock.console.page import url_for
from penstock.console.widgets.tables import LiveHtml
from penstock.core import formatting
from penstock.log.queue_info import GroupInfo

#: Lines of a description that are left out of the diagram.
_DETAIL_LINES = ("type ", "time", "grace", "allowed lateness", "late events")
#: Prefixes of the lines of the two sides of a join.
_JOIN_SIDES = ("left ", "right ")
#: Consecutive lines of these kinds share a node.
_MERGED_KINDS = ("aggregate", "field")


@dataclass(frozen=True, slots=True)
class PipelineNode:
    kind: str
    label: str
    #: The name of the queue, if the node is a queue.
    queue: str | None = None


def parse_description(description: Sequence[str]) -> list[PipelineNode]:
    """Return the nodes of a query from the lines of its description.

    >>> lines = ["from: a", "filter big: x > 1", "window: tumbling 5 s", "to: b, key c"]
    >>> [node.kind for node in parse_description(lines)]
    ['queue', 'filter', 'window', 'queue']
    >>> lines = ["join: inner", "left from: a", "left on: x", "right from: b", "right on: y"]
    >>> [node.label for node in parse_description(lines)]
    ['a', 'b', 'inner']
    """
    sides = [line for line in description if line.startswith(_JOIN_SIDES)]
    nodes = parse_description([line.partition(" ")[2] for line in sides]) if sides else []
    for line in description:
        prefix, _, definition = line.partition(": ")
        kind, _, name = prefix.partition(" ")
        if line.startswith(_JOIN_SIDES) or prefix.startswith(_DETAIL_LINES) or kind == "on":
            continue
        if kind == "from":
            nodes += [PipelineNode("queue", queue, queue) for queue in definition.split(", ")]
        elif kind == "to":
            queue = definition.split(", key ")[0]
            nodes.append(PipelineNode("queue", queue, queue))
        elif kind in _MERGED_KINDS:
            label = f"{name} = {_without_hash(definition)}"
            if nodes and nodes[-1].kind == kind:
                label = f"{nodes.pop().label}, {label}"
            nodes.append(PipelineNode(kind, label))
        else:
            label = _without_hash(definition)
            nodes.append(PipelineNode(kind, f"{name}: {label}" if name and kind != "gate" else label))
    return nodes


def _without_hash(definition: str) -> str:
    """Remove the hash of a user-defined function."""
    return definition.partition(", code ")[0]


class PipelineDiagram:
    def __init__(self) -> None:
        # _render_node escapes all names.
        self._html = LiveHtml()

    def show(self, description: Sequence[str], read: float, written: float, groups: Sequence[GroupInfo]) -> None:
        """Draw the diagram with the events read and written per second."""
        nodes = parse_description(description)
        lags = {group.queue: group.lag for group in groups}
        sources = [node for node in nodes if node.queue is not None and node.queue in lags]
        steps = [node for node in nodes if node not in sources]
        html = ['<div class="ps-flow" role="group" aria-label="', escape(_aria_label(nodes, read, written)), '">']
        # Several sources stand in a row, and one arrow leads from the last one to the first step.
        html += [_render_node(node, f"{formatting.compact(lags[node.queue or ''])} to read") for node in sources]
        for i, node in enumerate(steps):
            is_sink = i == len(steps) - 1 and node.queue is not None
            rate = read if i == 0 else written if is_sink else None
            html += [_render_arrow(rate), _render_node(node)]
        self._html.set_content("".join([*html, "</div>"]))


def _render_node(node: PipelineNode, note: str = "") -> str:
    label = escape(node.label)
    classes = "ps-flow-node"
    if node.queue is not None:
        classes += " ps-flow-queue"
        label = f'<a href="{escape(url_for("/queues", queue=node.queue))}">{label}</a>'
    small = f'<span class="ps-muted ps-small">{escape(note)}</span>' if note else ""
    return (
        f'<div class="{classes}"><span class="ps-flow-kind">{escape(node.kind)}</span>'
        f'<span class="ps-flow-label">{label}</span>{small}</div>'
    )


def _render_arrow(rate: float | None) -> str:
    label = "" if rate is None else f"{formatting.rate(rate)}/s"
    return f'<div class="ps-flow-arrow"><span class="ps-flow-rate">{label}</span></div>'


def _aria_label(nodes: Sequence[PipelineNode], read: float, written: float) -> str:
    steps = ", then ".join(f"{node.kind} {node.label}" for node in nodes)
    return f"{steps}; {formatting.rate(read)} events read and {formatting.rate(written)} written per second"
