"""Renders collapsed stacks as a flame graph: deterministic SVG without scripts.

The outermost frames are at the top. The width of a frame is its cost including its callees. Each frame has a tooltip,
which browsers show if the file is opened on its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

_WIDTH, _ROW, _MARGIN = 1200, 17, 8
_LETTER = 6.3
#: Narrower frames, in pixels, are omitted.
_MIN_WIDTH = 0.4
#: Light versions of the plot colours. All frames of a component have one colour.
_COLOURS = ("#7fb8d8", "#f2cf7f", "#7fceb8", "#e5bbd3", "#eaae7f", "#aad9f4", "#cccccc", "#dbd37f")
_HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
    'font-family="monospace" font-size="10.5" role="img">\n<title>{title}</title>\n'
    '<rect width="100%" height="100%" fill="white"/>\n'
)
_FRAME = (
    '<g><title>{title}</title><rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{fill}" '
    'stroke="white" stroke-width="0.5"/>{text}</g>\n'
)


@dataclass(slots=True)
class _Node:
    """A frame and its cost, including its callees."""

    cost: float = 0.0
    calls: dict[str, _Node] = field(default_factory=dict)

    def add(self, frames: list[str], cost: float) -> None:
        node = self
        node.cost += cost
        for frame in frames:
            node = node.calls.setdefault(frame, _Node())
            node.cost += cost

    def depth(self) -> int:
        return 1 + max((node.depth() for node in self.calls.values()), default=0)


def draw(stacks: Mapping[str, float], title: str, unit: str, path: Path) -> None:
    """Write the flame graph of stacks to a file. ``unit`` is that of the costs."""
    path.write_text(svg(stacks, title, unit))


def svg(stacks: Mapping[str, float], title: str, unit: str) -> str:
    """Render the flame graph, with siblings ordered by cost."""
    root = _Node()
    for stack, cost in stacks.items():
        root.add(stack.split(";"), cost)
    height = root.depth() * _ROW + 2 * _MARGIN
    scale = (_WIDTH - 2 * _MARGIN) / root.cost if root.cost else 0.0
    frames = _frames("everything", root, _MARGIN, 0, scale, "#dddddd", f"{root.cost:.2f} {unit}", root.cost)
    return _HEAD.format(width=_WIDTH, height=height, title=escape(title)) + "".join(frames) + "</svg>\n"


def _frames(
    name: str, node: _Node, x: float, level: int, scale: float, colour: str, of: str, total: float
) -> Iterator[str]:
    width = node.cost * scale
    if width < _MIN_WIDTH:
        return
    share = f"{name}: {100 * node.cost / total:.1f} % of {of}"
    yield _FRAME.format(
        title=escape(share),
        x=x,
        y=_MARGIN + level * _ROW,
        width=width,
        height=_ROW - 1,
        fill=_shade(colour, name) if level > 1 else colour,
        text=_text(name if level else share, x, _MARGIN + level * _ROW, width),
    )
    for number, (callee, child) in enumerate(sorted(node.calls.items(), key=lambda call: (-call[1].cost, call[0]))):
        inner = colour if level else _COLOURS[number % len(_COLOURS)]
        yield from _frames(callee, child, x, level + 1, scale, inner, of, total)
        x += child.cost * scale


def _text(name: str, x: float, y: int, width: float) -> str:
    """Return the label, cut to the width, or nothing if fewer than three letters fit."""
    room = int((width - 4) / _LETTER)
    if room < 3:
        return ""
    shown = name if len(name) <= room else name[: room - 1] + "…"
    return f'<text x="{x + 3:.1f}" y="{y + 12}">{escape(shown)}</text>'


def _shade(colour: str, name: str) -> str:
    """Vary the brightness by the name, to tell neighbours apart."""
    factor = 0.92 + 0.16 * (zlib.crc32(name.encode()) % 64) / 63
    channels = (int(colour[index : index + 2], 16) for index in (1, 3, 5))
    return "#" + "".join(f"{min(round(channel * factor), 255):02x}" for channel in channels)
