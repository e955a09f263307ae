"""What a person or a program gets to see."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

#: A message with more lines than this is cut to its first unless more is asked for.
_FEW_LINES = 4


class Output:
    """Results on standard output, as tables or as JSON; everything else on standard error."""

    def __init__(self, *, json: bool = False, quiet: bool = False, verbose: bool = False) -> None:
        self.json = json
        self.quiet = quiet
        self.verbose = verbose

    @cached_property
    def console(self) -> Console:
        """Where results go."""
        from rich.console import Console

        return Console(highlight=False, emoji=False, markup=False)

    @cached_property
    def errors(self) -> Console:
        """Where everything else goes."""
        from rich.console import Console

        return Console(stderr=True, highlight=False, emoji=False, markup=False)

    @property
    def is_terminal(self) -> bool:
        """Whether a person looks at the results."""
        return self.console.is_terminal

    # Results

    def document(self, value: Any) -> None:
        """Print one JSON document."""
        import msgspec

        from penstock.core import json

        text = json.encode(value)
        self.text((msgspec.json.format(text, indent=2) if self.is_terminal else text).decode())

    def line(self, value: Any) -> None:
        """Print a JSON document on a line of its own."""
        from penstock.core import json

        self.text(json.encode(value).decode())

    def text(self, text: str) -> None:
        """Print text as it is."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", right: Sequence[str] = ()
    ) -> None:
        """Print a table: with rules on a terminal, else columns that line up; ``right`` names those of numbers."""
        if not self.is_terminal:
            self._plain_table(columns, rows, title, right)
            return
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", title_style="bold")
        for column in columns:
            table.add_column(column, justify="right" if column in right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(visible(cell)) for cell in row))
        self.console.print(table)

    def _plain_table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], title: str, right: Sequence[str]
    ) -> None:
        from rich.cells import cell_len

        rows = [[visible(cell) for cell in row] for row in rows]
        widths = [max(map(cell_len, cells)) for cells in zip(columns, *rows, strict=True)]
        if title:
            self.text(title)
        for row in (columns, *rows):
            cells = []
            for column, cell, width in zip(columns, row, widths, strict=True):
                space = " " * (width - cell_len(cell))
                cells.append(space + cell if column in right else cell + space)
            self.text("  ".join(cells).rstrip())

    def facts(self, title: str, facts: Sequence[tuple[str, str]]) -> None:
        """Print names and values, one pair a line."""
        from rich.text import Text

        width = max((len(name) for name, _ in facts), default=0) + 2
        if title:
            self.console.print(Text(title, "bold"), soft_wrap=True)
        for name, value in facts:
            self.console.print(Text.assemble((f"  {name:<{width}}", "dim"), visible(value)), soft_wrap=True)

    def section(self, title: str, text: str) -> None:
        """Print text of any length under a title."""
        from rich.text import Text

        self.console.print(Text(title, "bold"), soft_wrap=True)
        for line in text.splitlines():
            self.console.print(Text("  " + visible(line)), soft_wrap=True)

    # Remarks

    def note(self, text: str) -> None:
        """Say what was done, unless a program reads or silence was asked for."""
        if not (self.quiet or self.json):
            self.console.print(text, soft_wrap=True)

    def hint(self, text: str) -> None:
        """Say something besides the result, unless silence was asked for."""
        if not (self.quiet or self.json):
            self.errors.print(text, style="dim", soft_wrap=True)

    def warn(self, text: str) -> None:
        """Point to something that deserves attention."""
        self.errors.print(f"warning: {text}", style="yellow", soft_wrap=True)

    def error(self, error: Exception | str) -> None:
        """Print one red line, and with ``--verbose`` all there is to say."""
        message = str(error).strip() or type(error).__name__
        lines = message.splitlines()
        if self.verbose:
            self._red(message)
            cause = error.__cause__ if isinstance(error, Exception) else None
            while cause is not None:
                self.errors.print(f"caused by {type(cause).__name__}: {cause}", style="dim", soft_wrap=True)
                cause = cause.__cause__
        elif len(lines) > _FEW_LINES:
            self._red(f"{lines[0].rstrip(':')} (--verbose shows more)")
        else:
            self._red(" ".join(message.split()))

    def _red(self, message: str) -> None:
        self.errors.print(f"error: {message}", style="red", soft_wrap=True)

    def confirm(self, question: str) -> None:
        """Go on if the answer is yes, else end here."""
        if not typer.confirm(question, err=True):
            raise typer.Exit(1)

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Show on a terminal that something takes its time."""
        if self.quiet or self.json or not self.errors.is_terminal:
            yield
            return
        with self.errors.status(f"{what} …"):
            yield

    def log_from(self, level: str) -> None:
        """Send log messages to standard error: from the level of the settings on, unless options say otherwise."""
        if self.verbose:
            level = "DEBUG"
        elif self.quiet:
            level = "ERROR"
        logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
        logging.getLogger("penstock").setLevel(level)


def visible(text: str) -> str:
    """The text with everything escaped that could do something to a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
