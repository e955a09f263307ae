"""A query as a picture: the queues it reads, its steps, the queue it writes, and how much goes along the arrows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from nicegui import ui

from penstock.console.page import link
from penstock.core import formatting
from penstock.log.queue_info import GroupInfo

#: Lines of a description that say how, not what.
_ASIDE = ("type ", "time", "grace", "allowed lateness", "late events")
#: Lines of the two sides of a join.
_SIDES = ("left ", "right ")
#: Lines that are one box, however many there are.
_TOGETHER = ("aggregate", "field")


@dataclass(frozen=True, slots=True)
class Node:
    """A box of the picture."""

    kind: str
    what: str
    #: The queue that it is.
    queue: str | None = None


def nodes_of(description: Sequence[str]) -> list[Node]:
    """The boxes of a query, from its description.

    >>> [node.kind for node in nodes_of(["from: a", "filter big: x > 1", "window: tumbling 5 s", "to: b, key c"])]
    ['queue', 'filter', 'window', 'queue']
    >>> [node.what for node in nodes_of(["join: inner", "left from: a", "left on: x", "right from: b", "right on: y"])]
    ['a', 'b', 'inner']
    """
    sides = [line for line in description if line.startswith(_SIDES)]
    nodes = nodes_of([line.partition(" ")[2] for line in sides]) if sides else []
    for line in description:
        label, _, what = line.partition(": ")
        kind, _, name = label.partition(" ")
        if line.startswith(_SIDES) or label.startswith(_ASIDE) or kind == "on":
            continue
        if kind == "from":
            nodes += [Node("queue", queue, queue) for queue in what.split(", ")]
        elif kind == "to":
            queue = what.split(", key ")[0]
            nodes.append(Node("queue", queue, queue))
        elif kind in _TOGETHER:
            part = f"{name} = {_plain(what)}"
            if nodes and nodes[-1].kind == kind:
                part = f"{nodes.pop().what}, {part}"
            nodes.append(Node(kind, part))
        else:
            nodes.append(Node(kind, f"{name}: {_plain(what)}" if name and kind != "gate" else _plain(what)))
    return nodes


def _plain(what: str) -> str:
    """Without the hash of the code, which is for machines."""
    return what.partition(", code ")[0]


class Pipeline:
    """The picture of one query."""

    def __init__(self) -> None:
        # Written here alone, and escaped.
        self._html = ui.html("", sanitize=False)
        self._last = ""

    def show(self, description: Sequence[str], read: float, written: float, groups: Sequence[GroupInfo]) -> None:
        """Draw it with these rates."""
        nodes = nodes_of(description)
        lags = {group.queue: group.lag for group in groups}
        sources = [node for node in nodes if node.queue is not None and node.queue in lags]
        steps = [node for node in nodes if node not in sources]
        drawn = ['<div class="ps-flow" role="group" aria-label="', escape(_spoken(nodes, read, written)), '">']
        # Several sources are one after the other, and one arrow leads from the last of them.
        drawn += [_drawn(node, f"{formatting.compact(lags[node.queue or ''])} to read") for node in sources]
        for place, node in enumerate(steps):
            is_last = place == len(steps) - 1
            known = read if place == 0 else written if is_last and node.queue is not None else None
            drawn += [_arrow(known), _drawn(node)]
        content = "".join([*drawn, "</div>"])
        if content != self._last:
            self._last = content
            self._html.set_content(content)


def _drawn(node: Node, note: str = "") -> str:
    what = escape(node.what)
    classes = "ps-flow-node"
    if node.queue is not None:
        classes += " ps-queue"
        what = f'<a href="{escape(link("/queues", queue=node.queue))}">{what}</a>'
    small = f'<span class="ps-muted ps-small">{escape(note)}</span>' if note else ""
    return (
        f'<div class="{classes}"><span class="ps-flow-kind">{escape(node.kind)}</span>'
        f'<span class="ps-flow-what">{what}</span>{small}</div>'
    )


def _arrow(rate: float | None) -> str:
    label = "" if rate is None else f"{formatting.rate(rate)}/s"
    return f'<div class="ps-flow-arrow"><span class="ps-figure">{label}</span></div>'


def _spoken(nodes: Sequence[Node], read: float, written: float) -> str:
    way = ", then ".join(f"{node.kind} {node.what}" for node in nodes)
    return f"{way}; {formatting.rate(read)} events read and {formatting.rate(written)} written per second"
