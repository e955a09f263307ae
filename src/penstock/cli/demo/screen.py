"""What is seen of the demonstration: acts that move on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_STEPS = 4
_LAST_LINES = 6


@dataclass(slots=True)
class Bar:
    """How far something is."""

    done: int = 0
    total: int = 0
    note: str = ""
    told: int = -1


@dataclass(slots=True)
class Act:
    """One part of the demonstration, as far as it has come."""

    title: str
    why: str
    result: str = ""
    lines: list[str] = field(default_factory=list)
    bars: dict[str, Bar] = field(default_factory=dict)


class Screen:
    """Says nothing; the demonstration's result is all that counts."""

    @contextmanager
    def act(self, title: str, why: str) -> Iterator[Act]:
        """An act, from its beginning to its end."""
        yield Act(title, why)

    def say(self, act: Act, line: str) -> None:
        """Tell what has just happened."""

    def progress(self, act: Act, name: str, done: int, total: int, note: str = "") -> None:
        """Show how far something is."""

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show a table."""

    def words(self, text: str) -> None:
        """Say something to the audience."""


class PlainScreen(Screen):
    """A line for each thing that happens: what a log can keep."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def act(self, title: str, why: str) -> Iterator[Act]:
        """An act, from its beginning to its end."""
        self.words(f"== {title}: {why}")
        act = Act(title, why)
        yield act
        if act.result:
            self.words(f"   {act.result}")

    def say(self, act: Act, line: str) -> None:
        """Tell what has just happened."""
        self.words(f"   {line}")

    def progress(self, act: Act, name: str, done: int, total: int, note: str = "") -> None:
        """Show how far something is, a few times on its way."""
        bar = act.bars.setdefault(name, Bar())
        step = _STEPS if done >= total else done * _STEPS // max(total, 1)
        if step > bar.told:
            bar.told = step
            self.words(f"   {name}: {done:,} of {total:,}{', ' + note if note else ''}")

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show a table."""
        widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
        self.words(f"   {title}")
        for row in (columns, *rows):
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            self.words(f"     {line.rstrip()}")

    def words(self, text: str) -> None:
        """Say something to the audience."""
        self._console.print(text, soft_wrap=True)
        self._console.file.flush()


class LiveScreen(Screen):
    """Acts that move, and stay as they ended."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def act(self, title: str, why: str) -> Iterator[Act]:
        """An act, from its beginning to its end."""
        from rich.live import Live
        from rich.spinner import Spinner

        act = Act(title, why)
        spinner = Spinner("dots", style="cyan")

        def picture() -> RenderableType:
            return self._picture(act, spinner)

        with Live(get_renderable=picture, console=self._console, refresh_per_second=12, transient=True):
            yield act
        self._console.print(self._picture(act, None))

    def say(self, act: Act, line: str) -> None:
        """Tell what has just happened."""
        act.lines.append(line)

    def progress(self, act: Act, name: str, done: int, total: int, note: str = "") -> None:
        """Show how far something is."""
        act.bars[name] = Bar(done, total, note)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show a table."""
        from rich import box
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
        for column in columns:
            table.add_column(column)
        for row in rows:
            table.add_row(*map(Text, row))
        self._console.print(Padding(table, (0, 0, 0, 2)))

    def words(self, text: str) -> None:
        """Say something to the audience."""
        self._console.print(text)

    def _picture(self, act: Act, spinner: RenderableType | None) -> RenderableType:
        from rich.console import Group
        from rich.padding import Padding
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        head = Table.grid(padding=(0, 1))
        head.add_row(spinner or Text("✓", "bold green"), Text(act.title, "bold"), Text(act.why, "dim"))
        parts: list[RenderableType] = [head]
        if act.bars:
            bars = Table.grid(padding=(0, 1))
            for name, bar in act.bars.items():
                picture = ProgressBar(
                    max(bar.total, 1), bar.done, width=36, complete_style="cyan", finished_style="green"
                )
                bars.add_row(Text(name, "cyan"), picture, Text(f"{bar.done:,}"), Text(bar.note, "dim"))
            parts.append(Padding(bars, (0, 0, 0, 2)))
        parts += [Text(f"  {line}") for line in act.lines[-_LAST_LINES:]]
        if act.result:
            parts.append(Text(f"  {act.result}", "green"))
        return Group(*parts)
