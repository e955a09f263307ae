"""Collapsed stacks as a flame graph: SVG without a script, the same bytes for the same stacks.

The outermost frames are at the top, each as wide as what it and all that it called spent. Every frame says what it is
and how much when the pointer rests on it, which browsers show where the picture is opened by itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

_WIDTH, _ROW, _MARGIN = 1200, 17, 8
_LETTER = 6.3
#: Narrower than this, in pixels, a frame cannot be seen.
_NARROWEST = 0.4
#: The colours of the plots, light enough for black letters; a part keeps its own all the way down.
_COLOURS = ("#7fb8d8", "#f2cf7f", "#7fceb8", "#e5bbd3", "#eaae7f", "#aad9f4", "#cccccc", "#dbd37f")
_HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
    'font-family="monospace" font-size="10.5" role="img">\n<title>{says}</title>\n'
    '<rect width="100%" height="100%" fill="white"/>\n'
)
_FRAME = (
    '<g><title>{says}</title><rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{fill}" '
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


def draw(stacks: Mapping[str, float], says: str, unit: str, path: Path) -> None:
    """Write the picture of stacks, whose costs are in a unit."""
    path.write_text(svg(stacks, says, unit))


def svg(stacks: Mapping[str, float], says: str, unit: str) -> str:
    """Render the graph, with siblings ordered by cost."""
    whole = _Node()
    for stack, cost in stacks.items():
        whole.add(stack.split(";"), cost)
    height = whole.depth() * _ROW + 2 * _MARGIN
    scale = (_WIDTH - 2 * _MARGIN) / whole.cost if whole.cost else 0.0
    frames = _frames("everything", whole, _MARGIN, 0, scale, "#dddddd", f"{whole.cost:.2f} {unit}", whole.cost)
    return _HEAD.format(width=_WIDTH, height=height, says=escape(says)) + "".join(frames) + "</svg>\n"


def _frames(
    name: str, node: _Node, x: float, level: int, scale: float, colour: str, of: str, total: float
) -> Iterator[str]:
    width = node.cost * scale
    if width < _NARROWEST:
        return
    share = f"{name}: {100 * node.cost / total:.1f} % of {of}"
    yield _FRAME.format(
        says=escape(share),
        x=x,
        y=_MARGIN + level * _ROW,
        width=width,
        height=_ROW - 1,
        fill=_shade(colour, name) if level > 1 else colour,
        text=_text(name if level else share, x, _MARGIN + level * _ROW, width),
    )
    for number, (called, below) in enumerate(sorted(node.calls.items(), key=lambda each: (-each[1].cost, each[0]))):
        inner = colour if level else _COLOURS[number % len(_COLOURS)]
        yield from _frames(called, below, x, level + 1, scale, inner, of, total)
        x += below.cost * scale


def _text(name: str, x: float, y: int, width: float) -> str:
    """As much of a name as there is room for; with less than three letters it says nothing."""
    room = int((width - 4) / _LETTER)
    if room < 3:
        return ""
    shown = name if len(name) <= room else name[: room - 1] + "…"
    return f'<text x="{x + 3:.1f}" y="{y + 12}">{escape(shown)}</text>'


def _shade(colour: str, name: str) -> str:
    """A little darker or lighter, by the name, so that neighbours can be told apart."""
    factor = 0.92 + 0.16 * (zlib.crc32(name.encode()) % 64) / 63
    channels = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{min(round(channel * factor), 255):02x}" for channel in channels)
