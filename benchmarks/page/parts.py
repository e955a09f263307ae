"""Parts of the page: sections, tables, plots, and comparisons with peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Table:
    """A table. Cells are formatted by :func:`cell`."""

    head: Sequence[str]
    rows: Sequence[Sequence[object]]

    def markdown(self) -> str:
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(self.head)
        rule = ["---" if any(isinstance(value, str) for value in column) else "---:" for column in columns]
        lines = [self.head, rule, *self.rows]
        return "\n".join("| " + " | ".join(cell(value) for value in line) + " |" for line in lines)


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes with named series: bars by category, or points of a line."""

    title: str
    series: Mapping[str, Mapping[str, float | None] | Sequence[tuple[float, float]]]
    x: str = ""
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """Panels side by side."""

    name: str
    #: The alternative text.
    title: str
    panels: Sequence[Panel]

    @property
    def has_data(self) -> bool:
        return bool(self.panels) and all(any(panel.series.values()) for panel in self.panels)


@dataclass(frozen=True, slots=True)
class Flame:
    """A flame graph of collapsed stacks and their costs."""

    name: str
    title: str
    unit: str
    stacks: Mapping[str, float]

    @property
    def has_data(self) -> bool:
        return bool(self.stacks)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure of Penstock and of a peer, on the same workload in the same run."""

    measurement: str
    unit: str
    ours: float
    peer: str
    theirs: float
    more_is_better: bool = True

    @property
    def times(self) -> float:
        """The factor by which Penstock is better than the peer."""
        return self.ours / self.theirs if self.more_is_better else self.theirs / self.ours


@dataclass(slots=True)
class Section:
    """A benchmark on the page."""

    title: str
    about: str
    tables: list[Table] = field(default_factory=list)
    plots: list[Plot | Flame] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def compare(
        self,
        measurement: str,
        unit: str,
        ours: float | None,
        peer: str,
        theirs: float | None,
        *,
        more_is_better: bool = True,
    ) -> None:
        """Add a comparison if both sides have a figure."""
        if ours and theirs:
            self.comparisons.append(Comparison(measurement, unit, ours, peer, theirs, more_is_better))


def cell(value: object) -> str:
    """Format a value for a Markdown table."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.1f}" if abs(value) >= 100 else f"{value:,.2f}"
    return " ".join(str(value).split()).replace("|", "\\|")
